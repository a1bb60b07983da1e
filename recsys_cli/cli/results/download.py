"""Result of `recsys download`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import size
from recsys_cli.cli.tables import line

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import RawData


_NEXT = "recsys etl CONFIG (recsys ls configs lists the included configs)"


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
    if result["next"]:
        line(to, f"next: {result['next']}", style="dim")
