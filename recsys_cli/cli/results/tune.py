"""What `recsys tune` found: the trials from best to worst, and the values of the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import duration
from recsys_cli.cli.tables import line, table
from recsys_cli.tuning.facts import caveat

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import TunedStudy


def result(made: StageResult[TunedStudy]) -> dict[str, Any]:
    """Gather what the manifest says."""
    study = made.artifact
    found = study.manifest
    return {
        "study": study.folder.name,
        "up_to_date": made.up_to_date,
        "path": str(study.folder),
        "report": str(study.report),
        **found,
        "caveat": caveat(found),
        "next": f"recsys train {study.best}" if found["best"] else None,
    }


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Show the trials, the best of them, where the page is and what comes next."""
    keys, metric = list(found["space"]), found["metric"]["name"]
    rows = [_row(entry, keys) for entry in found["ranking"]]
    headings = ("rank", "trial", metric, *keys, "epochs", "time", "state")
    table(to, "", headings, rows, text=0)
    for entry in found["ranking"]:
        if entry["state"] == "failed":
            line(to, f"trial {entry['trial']} failed: {entry['message']}")
    counts = found["trials"]
    over = sum(counts[state] for state in ("finished", "pruned", "failed"))
    if found["up_to_date"]:
        line(to, f"tuning is up to date: {over} of {counts['wanted']} trials; --trials N makes more")
    best = found["best"]
    if best:
        line(to, f"best {metric}: {_figure(best['value'])}, of trial {best['trial']}: {best['overrides']}")
        line(to, str(found["caveat"]))
    line(to, f"page: {found['report']}")
    if found["next"]:
        line(to, f"next: {found['next']}", style="dim")


def _row(entry: Mapping[str, Any], keys: list[str]) -> tuple[str, ...]:
    return (
        str(entry["rank"] or ""),
        str(entry["trial"]),
        _figure(entry["value"]),
        *(_short(entry["changes"].get(key, "")) for key in keys),
        str(entry["epochs"]),
        "" if entry["seconds"] is None else duration(entry["seconds"]),
        entry["state"],
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
