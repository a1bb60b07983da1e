"""Result of `recsys etl`."""

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
    """Return findings and path of the data report, which earlier versions have not."""
    from recsys_cli.workspace import read_json

    if not data.report.is_file():
        return {"findings": [], "report": None}
    facts = read_json(data.facts, hint=data.remake, expected={})
    return {"findings": facts.get("findings", []), "report": str(data.report)}


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw splits, vocabularies, findings and the next command."""
    if result["up_to_date"]:
        line(to, f"prepared data is up to date: {result['path']}")
    else:
        _draw_splits(to, result)
        _draw_columns(to, result)
        if result["bad_rows"]:
            line(to, f"{result['bad_rows']:,} bad rows skipped, see {result['path']}/rejected.jsonl", style="yellow")
        for finding in result["findings"]:
            warning = finding["level"] == "warning"
            line(to, f"{finding['level']}: {finding['text']}", style="yellow" if warning else "dim")
        costs = f"{duration(result['seconds']['total'])}, peak memory {size(result['peak_memory'])}"
        line(to, f"prepared with {result['engine']} in {costs}: {result['path']}")
        if result["report"]:
            line(to, f"report: {result['report']}")
    if result["next"]:
        line(to, f"next: {result['next']}", style="dim")


def _draw_splits(to: Console, result: Mapping[str, Any]) -> None:
    total = sum(result["rows"].values()) or 1
    cells = [
        (
            split,
            f"{rows:,}",
            share(rows / total),
            *(_cold(result["cold"].get(split, {}).get(role)) for role in ("users", "items")),
        )
        for split, rows in result["rows"].items()
        if rows
    ]
    table(to, "", ("split", "rows", "share", "cold users", "cold items"), cells)


def _cold(counted: Mapping[str, int] | None) -> str:
    if not counted or not counted["distinct"]:
        return ""
    return f"{counted['cold']:,} ({share(counted['cold'] / counted['distinct'])})"


def _draw_columns(to: Console, result: Mapping[str, Any]) -> None:
    held_out = [split for split in ("valid", "test") if result["rows"].get(split)]
    cells = [
        (
            column,
            f"{entries:,}",
            _missing(result, "train", column, "null"),
            *(_missing(result, split, column, "unseen") for split in held_out),
        )
        for column, entries in result["vocabularies"].items()
    ]
    headings = ("column", "vocabulary", "null in train", *(f"unseen in {split}" for split in held_out))
    table(to, "", headings, cells)


def _missing(result: Mapping[str, Any], split: str, column: str, kind: str) -> str:
    """Return the share of null or unseen values of a column; empty for dimension tables."""
    counted = result["quality"].get(split, {}).get(column)
    if not counted or not counted.get("values"):
        return ""
    return share(counted.get(kind, 0) / counted["values"])
