"""Result of `recsys tune`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import duration, figure
from recsys_cli.cli.tables import line, table
from recsys_cli.tuning.trial import caveat

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import TunedStudy


def result(made: StageResult[TunedStudy]) -> dict[str, Any]:
    """Gather what the manifest says."""
    study = made.artifact
    manifest = study.manifest
    return {
        "study": study.folder.name,
        "up_to_date": made.up_to_date,
        "path": str(study.folder),
        "report": str(study.report),
        **manifest,
        "caveat": caveat(manifest),
        "next": f"recsys train {study.best}" if manifest["best"] else None,
    }


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the trials and the best values."""
    keys, metric = list(result["space"]), result["metric"]["name"]
    rows = [_row(entry, keys) for entry in result["ranking"]]
    headings = ("rank", "trial", metric, *keys, "epochs", "time", "state")
    table(to, "", headings, rows, text=0)
    for entry in result["ranking"]:
        if entry["state"] == "failed":
            line(to, f"trial {entry['trial']} failed: {entry['message']}")
    counts = result["trials"]
    ended = sum(counts[state] for state in ("finished", "pruned", "failed"))
    if result["up_to_date"]:
        line(to, f"tuning is up to date: {ended} of {counts['wanted']} trials{_more(result)}")
    best = result["best"]
    if best:
        line(to, f"best {metric}: {figure(best['value'])}, trial {best['trial']}: {best['overrides']}")
        line(to, str(result["caveat"]))
    line(to, f"page: {result['report']}")
    if result["next"]:
        line(to, f"next: {result['next']}", style="dim")


def _more(result: Mapping[str, Any]) -> str:
    is_exhausted = (result["combinations"] or math.inf) <= result["trials"]["wanted"]
    return ", all combinations of the search space" if is_exhausted else "; --trials N adds more"


def _row(entry: Mapping[str, Any], keys: list[str]) -> tuple[str, ...]:
    return (
        str(entry["rank"] or ""),
        str(entry["trial"]),
        figure(entry["value"]),
        *(_short(entry["changes"].get(key, "")) for key in keys),
        str(entry["epochs"]),
        "" if entry["seconds"] is None else duration(entry["seconds"]),
        entry["state"],
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
