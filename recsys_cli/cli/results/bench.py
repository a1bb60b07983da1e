"""What `recsys bench` found: the models from best to worst."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import amount, duration
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.evaluation.compare.leaderboard import Leaderboard, Standing

_SAME = "="


def result(found: Leaderboard, *, html: Path | None) -> dict[str, Any]:
    """Gather the leaderboard and where its page is."""
    return {**found.model_dump(mode="json"), "report": None if html is None else str(html)}


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Show the table, what failed, and who may be as good as the best."""
    from recsys_cli.evaluation.compare.leaderboard import Leaderboard, in_words
    from recsys_cli.evaluation.metrics.named import title_of

    board = Leaderboard.model_validate({key: value for key, value in found.items() if key != "report"})
    title = f"{board.split}: {board.users:,} users, {board.rows:,} rows; by {title_of(board.metric)}"
    headings = ("", "model", *map(title_of, board.metrics), "95 % interval", "training", "parameters")
    table(to, title, headings, [_row(one, board) for one in board.standings], text=2)
    line(to, in_words(board))
    number = len(board.seeds)
    seeds = f"; ± standard deviation over {number} seeds" if number > 1 else ""
    line(to, f"{_SAME} cannot be told apart from the best; (baseline) is beside every evaluation{seeds}", style="dim")
    for failure in board.failures:
        line(to, f"{failure['label']}, seed {failure['seed']} failed: {failure['message']}", style="yellow")
    if found["report"]:
        line(to, f"page: {found['report']}")


def _row(one: Standing, board: Leaderboard) -> tuple[str, ...]:
    from recsys_cli.evaluation.compare.leaderboard_page import figure

    first = one.scores[board.metric]
    known = first.low is not None and first.high is not None
    return (
        f"{one.place}{_SAME if one.is_same_as_best else ''}" if first.value is not None else "",
        one.called(seeds=len(board.seeds)),
        *(figure(one.scores[metric]) for metric in board.metrics),
        f"[{first.low:.4f}, {first.high:.4f}]" if known else "",
        "" if one.seconds is None else duration(one.seconds),
        "" if one.parameters is None else amount(one.parameters),
    )
