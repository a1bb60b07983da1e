"""What `recsys bench` found: the models from best to worst."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import amount, duration
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.evaluation.compare.leaderboard import Leaderboard, LeaderboardRow, SeededScore

Cell = tuple[str, str]
"""A text, and what belongs to it: behind it, or below it where there is little room."""
Columns = dict[str, list[Cell]]
_SAME = "="
_INTERVAL, _TRAINING, _PARAMETERS = "95 % interval", "training", "parameters"
_TEXT = 2
"""Columns of text; those of numbers follow."""
_BETWEEN = 3
"""Spaces between two columns."""
_NAME = 16
"""Characters of a model's name that have to fit on its first line."""


def result(found: Leaderboard, *, html: Path | None) -> dict[str, Any]:
    """Gather the leaderboard and where its page is."""
    return {**found.model_dump(mode="json"), "report": None if html is None else str(html)}


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Show the table, what failed, and who may be as good as the best."""
    from recsys_cli.evaluation.compare.leaderboard import RETRY_NOTE, Leaderboard, failures_in_words, in_words
    from recsys_cli.metrics.named import title_of

    board = Leaderboard.model_validate({key: value for key, value in found.items() if key != "report"})
    title = f"{board.split}: {board.users:,} users, {board.rows:,} rows; by {title_of(board.metric)}"
    columns = _fitting(_columns(board), width=to.width)
    table(to, title, list(columns), zip(*columns.values(), strict=True), text=_TEXT)
    line(to, in_words(board))
    line(to, "; ".join(_marks(board)), style="dim")
    for what, message, hint in failures_in_words(board):
        line(to, f"{what} failed: {message}{f' ({hint})' if hint else ''}", style="yellow")
    if board.failures:
        line(to, RETRY_NOTE, style="dim")
    if found["report"]:
        line(to, f"page: {found['report']}")


def _columns(board: Leaderboard) -> Columns:
    """Write the table's columns by heading."""
    from recsys_cli.metrics.named import title_of

    lines, seeds = board.standings, len(board.seeds)
    figures = {title_of(metric): [_figure(one.scores[metric], seeds) for one in lines] for metric in board.metrics}
    of_seeds = {"seeds": [(one.seeds_in_words(seeds=seeds), "") for one in lines]} if seeds > 1 else {}
    return {
        "": [(_place(one, board.metric), "") for one in lines],
        "model": [(one.called, "") for one in lines],
        **figures,
        _INTERVAL: [_interval(one.scores[board.metric]) for one in lines],
        **of_seeds,
        _TRAINING: [("" if one.seconds is None else duration(one.seconds), "") for one in lines],
        _PARAMETERS: [("" if one.parameters is None else amount(one.parameters), "") for one in lines],
    }


def _fitting(columns: Columns, *, width: int) -> dict[str, list[str]]:
    """Make a table fit: the second parts of cells go below; then parameters, interval and training time are left out."""
    fitting = {heading: [" ".join(filter(None, cell)) for cell in cells] for heading, cells in columns.items()}
    if _width(fitting) <= width:
        return fitting
    fitting = {
        heading: [text if not below or below.endswith("–") else f"{text}\n{below}" for text, below in cells]
        for heading, cells in columns.items()
    }
    for heading in (_PARAMETERS, _INTERVAL, _TRAINING):
        if _width(fitting) > width:
            del fitting[heading]
    return fitting


def _width(columns: Mapping[str, list[str]]) -> int:
    """Return how wide a table is if the names of models go on below."""
    cells = [
        [*heading.split(), *(line for text in texts for line in text.split("\n"))] for heading, texts in columns.items()
    ]
    widest = [max(map(len, lines)) for lines in cells]
    return sum([widest[0], min(widest[1], _NAME), *widest[_TEXT:]]) + _BETWEEN * (len(columns) - 1)


def _place(one: LeaderboardRow, metric: str) -> str:
    return "" if one.scores[metric].value is None else f"{one.place}{_SAME if one.is_same_as_best else ''}"


def _figure(score: SeededScore, seeds: int) -> Cell:
    mean, deviation = score.in_words(seeds=seeds)
    return mean, f"± {deviation:>6}" if deviation else ""


def _interval(score: SeededScore) -> Cell:
    known = score.low is not None and score.high is not None
    return (f"[{score.low:.4f},", f"{score.high:.4f}]") if known else ("", "")


def _marks(board: Leaderboard) -> Iterator[str]:
    """Say what marks mean."""
    yield f"{_SAME} cannot be told apart from the best"
    yield "(baseline) is beside every evaluation"
    if len(board.seeds) > 1:
        yield f"± standard deviation over {len(board.seeds)} seeds, which is part of the intervals"
        if any(one.deterministic for one in board.standings):
            yield "any seed: no chance is in it, so one run counts for all"
    yield from board.notes
