"""What `recsys download` made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import size
from recsys_cli.cli.tables import line

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import RawData


def result(made: StageResult[RawData]) -> dict[str, Any]:
    """Gather what is known about the dataset."""
    folder = made.artifact.folder
    return {
        "dataset": made.artifact.manifest["dataset"],
        "up_to_date": made.up_to_date,
        "path": str(folder),
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "facts": made.artifact.manifest["facts"],
        "next": "recsys etl CONFIG (recsys ls configs shows which there are)",
    }


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Say where it is and what comes next."""
    state = "is up to date" if found["up_to_date"] else "is ready"
    line(to, f"{found['dataset']} {state}: {found['path']}, {size(found['bytes'])}")
    if found["next"]:
        line(to, f"next: {found['next']}", style="dim")
