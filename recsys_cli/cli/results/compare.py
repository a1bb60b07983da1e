"""What `recsys compare` found: a table for each run that is compared, and what of it counts, in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.evaluation.compare.comparison import Comparison


def result(found: Comparison, *, html: Path | None) -> dict[str, Any]:
    """Gather the comparison and where its page is."""
    return {**found.model_dump(mode="json"), "report": None if html is None else str(html)}


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Show the differences of each run, and the sentences."""
    from recsys_cli.evaluation.compare.format import METHOD
    from recsys_cli.evaluation.selection import marked

    names = {run["label"]: marked(run["label"], run["selected"]) for run in found["runs"]}
    for run in found["runs"][1:]:
        _draw_one(to, run["label"], found["against"], found["figures"], names)

    for sentence in found["sentences"]:
        line(to, sentence)
    for note in found["notes"]:
        line(to, f"note: {note}", style="yellow")
    line(to, f"{METHOD} There are {found['tests']} tests.", style="dim")
    if found["report"]:
        line(to, f"page: {found['report']}")


def _draw_one(
    to: Console, label: str, against: str, figures: list[Mapping[str, Any]], names: Mapping[str, str]
) -> None:
    from recsys_cli.evaluation.compare.page import probability
    from recsys_cli.metrics.named import ARROWS

    rows = []
    for figure in figures:
        one = figure["differences"][label]
        rows.append(
            (
                f"{figure['title']} {ARROWS[figure['better']]}".rstrip(),
                f"{figure['values'][against]:.4f}",
                f"{figure['values'][label]:.4f}",
                f"{one['value']:+.4f}",
                f"[{one['low']:+.4f}, {one['high']:+.4f}]",
                probability(one["p_holm"]),
                one["verdict"],
            )
        )
    heads = ("", names[against], names[label], "difference", "95 % interval", "p (Holm)", "")
    table(to, f"{names[label]} against {names[against]}", heads, rows)
