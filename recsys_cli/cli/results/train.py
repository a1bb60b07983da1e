"""Result of `recsys train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import amount, duration, figure, share
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import TrainedRun


def result(made: StageResult[TrainedRun]) -> dict[str, Any]:
    """Gather what the manifest says."""
    run = made.artifact
    return {
        "run": run.folder.name,
        "up_to_date": made.up_to_date,
        "path": str(run.folder),
        **run.manifest,
        **({"candidates": [asdict(one) for one in made.candidates]} if made.candidates else {}),
        "next": "recsys evaluate",
    }


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the candidates, or the epochs, and the run."""
    if candidates := result.get("candidates"):
        _draw_candidates(to, candidates)
    if result["up_to_date"]:
        line(to, f"training is up to date: {result['path']}")
    else:
        cells = [_epoch(epoch, is_best=epoch["epoch"] == result["best_epoch"]) for epoch in result["history"]]
        figures = [f"valid {name}" for name in result["history"][0]["valid"]]
        headings = ("epoch", "train loss", *figures, f"{result.get('unit', 'rows')}/s", "waiting", "time")
        if not candidates:
            table(to, "", headings, cells, text=0)
        kept = " (* best epoch, kept)" if len(result["history"]) > 1 else ""
        line(to, f"trained {result['parameters']:,} parameters on {result['device']}, {result['precision']}{kept}")
        for note in result.get("notes", ()):
            line(to, f"note: {note}")
        line(to, f"run: {result['path']}")
    if result["next"]:
        line(to, f"next: {result['next']}", style="dim")


def _draw_candidates(to: Console, candidates: Sequence[Mapping[str, Any]]) -> None:
    best = candidates[0]
    cells = [(one["label"], figure(one["value"]), duration(one["seconds"]), one["run"]) for one in candidates]
    table(to, "candidates, the best by valid first", ("model", f"valid {best['metric']}", "time", "run"), cells)
    if best["label"].startswith("popularity"):
        line(to, f"note: no candidate ranks better than {best['label']} on valid", style="yellow")
    elif best["value"] is None:
        line(to, f"note: {best['metric']} cannot be measured on valid; {best['label']} is taken", style="yellow")


def _epoch(epoch: Mapping[str, Any], *, is_best: bool) -> tuple[str, ...]:
    seconds = epoch["seconds"] or 1e-9
    return (
        f"{'* ' if is_best else ''}{epoch['epoch']}",
        *map(figure, (epoch["train_loss"], *epoch["valid"].values())),
        amount(epoch["rows"] / seconds),
        share(epoch["waiting"] / seconds),
        duration(epoch["seconds"]),
    )
