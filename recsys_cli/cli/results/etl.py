"""What `recsys etl` made: how much, how many of what, and what is missing from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import duration, share, size
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import PreparedData

_FACTS = ("rows", "vocabularies", "quality", "cold", "bad_rows", "engine", "seconds", "peak_memory")


def result(made: StageResult[PreparedData]) -> dict[str, Any]:
    """Gather what the manifest says."""
    manifest = made.artifact.manifest
    return {
        "up_to_date": made.up_to_date,
        "path": str(made.artifact.folder),
        **{fact: manifest.get(fact) for fact in _FACTS},
        **_reported(made.artifact),
        "next": "recsys train",
    }


def _reported(data: PreparedData) -> dict[str, Any]:
    """Gather what the data report says that nobody may miss; prepared data of an earlier version has none."""
    from recsys_cli.workspace import read_json

    if not data.report.is_file():
        return {"findings": [], "report": None}
    facts = read_json(data.facts, hint=data.remake, expected={"findings": list})
    return {"findings": facts["findings"], "report": str(data.report)}


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Answer what one wants to know of prepared data before training on it."""
    if found["up_to_date"]:
        line(to, f"prepared data is up to date: {found['path']}")
    else:
        _draw_splits(to, found)
        _draw_columns(to, found)
        if found["bad_rows"]:
            line(to, f"{found['bad_rows']:,} bad rows left out, see {found['path']}/rejected.jsonl", style="yellow")
        for finding in found["findings"]:
            warning = finding["level"] == "warning"
            line(to, f"{finding['level']}: {finding['text']}", style="yellow" if warning else "dim")
        took = f"{duration(found['seconds']['total'])}, {size(found['peak_memory'])} at most"
        line(to, f"prepared with {found['engine']} in {took}: {found['path']}")
        if found["report"]:
            line(to, f"report: {found['report']}")
    if found["next"]:
        line(to, f"next: {found['next']}", style="dim")


def _draw_splits(to: Console, found: Mapping[str, Any]) -> None:
    total = sum(found["rows"].values()) or 1
    cells = [
        (
            split,
            f"{rows:,}",
            share(rows / total),
            *(_cold(found["cold"].get(split, {}).get(role)) for role in ("users", "items")),
        )
        for split, rows in found["rows"].items()
        if rows
    ]
    table(to, "", ("split", "rows", "share", "cold users", "cold items"), cells)


def _cold(counted: Mapping[str, int] | None) -> str:
    if not counted or not counted["distinct"]:
        return ""
    return f"{counted['cold']:,} ({share(counted['cold'] / counted['distinct'])})"


def _draw_columns(to: Console, found: Mapping[str, Any]) -> None:
    held_out = [split for split in ("valid", "test") if found["rows"].get(split)]
    cells = [
        (
            column,
            f"{entries:,}",
            _missing(found, "train", column, "null"),
            *(_missing(found, split, column, "unseen") for split in held_out),
        )
        for column, entries in found["vocabularies"].items()
    ]
    headings = ("column", "vocabulary", "null in train", *(f"unseen in {split}" for split in held_out))
    table(to, "", headings, cells)


def _missing(found: Mapping[str, Any], split: str, column: str, what: str) -> str:
    """Say which share of a column's values is missing; a column of the star's tables is not counted by row."""
    counted = found["quality"].get(split, {}).get(column)
    if not counted or not counted.get("values"):
        return ""
    return share(counted.get(what, 0) / counted["values"])
