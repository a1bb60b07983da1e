"""Shell completion of names: of the registry, and of a workspace. The shell completes paths itself, where no name fits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from recsys_cli import registry
from recsys_cli.cli import shipped

_NAMES = {
    "model.name": (registry.AUTO, *registry.MODELS),
    "dataset.name": registry.DATASETS,
    "etl.engine": ("auto", *registry.ENGINES),
}
"""Config keys whose values are names of the registry."""


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the runs of the workspace, latest first."""
    folder = Path(ctx.find_root().params.get("workspace") or "workspace") / "runs"
    names = sorted((path.parent.name for path in folder.glob("*/config.yaml")), reverse=True)
    return _starting(incomplete, names)


def complete_dataset(incomplete: str) -> list[str]:
    """Return the datasets."""
    return _starting(incomplete, registry.DATASETS)


def complete_config(incomplete: str) -> list[str]:
    """Return the included configs, and overrides by a name of the registry, such as `model.name=ease`."""
    configs = [] if Path("configs").is_dir() else [f"configs/{path.name}" for path in shipped.configs()]
    return [*_starting(incomplete, configs), *complete_override(incomplete)]


def complete_override(incomplete: str) -> list[str]:
    """Return the overrides by a name of the registry."""
    return _starting(incomplete, (f"{key}={name}" for key, names in _NAMES.items() for name in names))


def complete_run_or_config(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return runs, and what `complete_config` returns."""
    return [*complete_run(ctx, incomplete), *complete_config(incomplete)]


def complete_listed(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the kind of `recsys ls`."""
    kinds: dict[str, Iterable[str]] = {
        "datasets": registry.DATASETS,
        "models": registry.MODELS,
        "engines": registry.ENGINES,
        "protocols": registry.PROTOCOLS,
    }
    return _starting(incomplete, kinds.get(str(ctx.params.get("kind")), ()))


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
