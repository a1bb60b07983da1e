"""Result of `recsys compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.tables import line, notes, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.evaluation.compare.comparison import Comparison


def result(comparison: Comparison, *, html: Path | None) -> dict[str, Any]:
    """Return the comparison and the path of its page as plain values."""
    return {**comparison.model_dump(mode="json"), "report": None if html is None else str(html)}


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the differences of each run and the conclusions."""
    from recsys_cli.evaluation.compare.comparison import METHOD
    from recsys_cli.evaluation.result import marked

    names = {run["label"]: marked(run["label"], run["selected"]) for run in result["runs"]}
    for run in result["runs"][1:]:
        _draw_one(to, run["label"], result["against"], result["figures"], names)

    for sentence in result["sentences"]:
        line(to, sentence)
    notes(to, result["notes"])
    line(to, f"{METHOD} Number of tests: {result['tests']}.", style="dim")
    if result["report"]:
        line(to, f"page: {result['report']}")


def _draw_one(
    to: Console, label: str, against: str, figures: list[Mapping[str, Any]], names: Mapping[str, str]
) -> None:
    from recsys_cli.evaluation.compare.pages import probability
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
