"""The command `recsys download`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_dataset
from recsys_cli.cli.params import Force, is_config, read_config
from recsys_cli.cli.quantities import size
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.config import DatasetConfig
    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import RawData

_NEXT = "recsys etl CONFIG (recsys ls configs lists the included configs)"


def download(
    ctx: typer.Context,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET",
            help="Name of a dataset (recsys ls datasets), or a config with a dataset.",
            show_default=False,
            autocompletion=complete_dataset,
        ),
    ],
    from_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Take this archive, file or folder instead of downloading.")
    ] = None,
    mirror: Annotated[
        str | None, typer.Option(metavar="URL", help="Download from this mirror (or RECSYS_MIRROR).")
    ] = None,
    force: Force = False,
) -> None:
    """Download a dataset into the workspace."""
    from recsys_cli.config import DatasetConfig

    session: Session = ctx.obj
    config = dataset if is_config(dataset) else None
    section = read_config(session, [config]).dataset if config else DatasetConfig(name=dataset)
    done = run_download(session, section, config=config, mirror=mirror, from_file=from_file, force=force)
    session.report(done, draw)


def run_download(
    session: Session,
    dataset: DatasetConfig,
    *,
    config: str | None = None,
    mirror: str | None = None,
    from_file: Path | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Download a dataset, with progress; return its facts."""
    with session.working("download") as emit:
        from recsys_cli.stages.download import download

        made = download(dataset, session.workspace, mirror=mirror, from_file=from_file, force=force, emit=emit)
    return result(made, config=config)


def result(made: StageResult[RawData], *, config: str | None = None) -> dict[str, Any]:
    """Gather the facts of the dataset, with the next command for its config, if one is named."""
    folder = made.artifact.folder
    return {
        "dataset": made.artifact.manifest["dataset"],
        "up_to_date": made.up_to_date,
        "path": str(folder),
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "facts": made.artifact.manifest["facts"],
        "next": f"recsys etl {shlex.quote(config)}" if config else _NEXT,
    }


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw path, size and the next command."""
    state = "is up to date" if result["up_to_date"] else "is ready"
    line(to, f"{result['dataset']} {state}: {result['path']}, {size(result['bytes'])}")
