"""The HTML page of a leaderboard."""

from __future__ import annotations

from collections.abc import Collection

from markupsafe import Markup

from recsys_cli.evaluation.compare.leaderboard import (
    RETRY_NOTE,
    Leaderboard,
    LeaderboardRow,
    failures_in_words,
    in_words,
)
from recsys_cli.evaluation.compare.page import probability
from recsys_cli.evaluation.compare.published import LEVEL_NOTE, one_table
from recsys_cli.metrics.named import ARROWS, better_of, title_of
from recsys_cli.page import Axis, IntervalBar, LabeledPoint, intervals, points, render

_BEST, _OTHERS, _BASELINES = 1, 2, 5


def show(board: Leaderboard) -> str:
    """Return the page as one self-contained HTML document."""
    titles = [f"{title_of(metric)} {ARROWS[better_of(metric)]}".rstrip() for metric in board.metrics]
    return render(
        "leaderboard.html.j2",
        package=__package__,
        board=board,
        title=title_of(board.metric),
        sentence=in_words(board),
        figure=standings(board),
        trade_off=trade_off(board),
        failures=failures_in_words(board),
        retry_note=RETRY_NOTE,
        published=board.published and one_table(board.standings, board.published, board.metrics),
        level_note=LEVEL_NOTE,
        head=["", "model", *titles, "difference", "p (Holm)", "seeds", "seconds", "parameters"],
        rows=[_row(one, board) for one in board.standings],
    )


def standings(board: Leaderboard) -> Markup:
    """Plot the models from best to worst, with their intervals."""
    marks = [
        IntervalBar(one.label, score.value, score.low, score.high, _colour(one, board))
        for one in board.standings
        for score in [one.scores[board.metric]]
        if score.value is not None and score.low is not None and score.high is not None
    ]
    title = title_of(board.metric)
    axis = Axis(f"{title}, with 95 % confidence interval")
    return intervals(f"Models by {title}", marks, x=axis, names=_legend({one.color for one in marks}))


def trade_off(board: Leaderboard) -> Markup:
    """Plot accuracy over catalog coverage, a point for each model; empty without a ranking metric."""
    name = board.accuracy
    if name is None:
        return Markup("")
    marks = [
        LabeledPoint(one.label, one.coverage, score.value, score.interval, _colour(one, board))
        for one in board.standings
        for score in [one.scores[name]]
        if score.value is not None and one.coverage is not None
    ]
    title, cut_off = title_of(name), name.rpartition("@")[2]
    return points(
        f"{title} over catalog coverage",
        marks,
        x=Axis(f"catalog coverage of the top {cut_off}", "share"),
        y=Axis(f"{title}, with 95 % confidence interval"),
        names=_legend({one.color for one in marks}),
    )


def _legend(used: Collection[int]) -> list[tuple[int, str]]:
    names = [
        (_BEST, "the best, and models without a significant difference from it"),
        (_OTHERS, "others"),
        (_BASELINES, "baselines"),
    ]
    return [one for one in names if one[0] in used]


def _colour(one: LeaderboardRow, board: Leaderboard) -> int:
    if (one.place == 1 and board.is_ranked) or one.is_same_as_best:
        return _BEST
    return _BASELINES if one.is_baseline else _OTHERS


def _row(one: LeaderboardRow, board: Leaderboard) -> list[str]:
    difference, seeds = one.from_best, len(board.seeds)
    figures = [one.scores[metric].in_words(seeds=seeds) for metric in board.metrics]
    return [
        str(one.place) if one.scores[board.metric].value is not None else "",
        one.called,
        *(_stacked(mean, f"± {deviation}" if deviation else "") for mean, deviation in figures),
        ""
        if difference is None
        else _stacked(f"{difference.value:+.4f}", f"[{difference.low:+.4f}, {difference.high:+.4f}]"),
        ""
        if difference is None
        else _stacked(probability(difference.p_holm), "not significant" if one.is_same_as_best else ""),
        one.seeds_in_words(seeds=seeds),
        "" if one.seconds is None else f"{one.seconds:,.1f}",
        "" if one.parameters is None else f"{one.parameters:,}",
    ]


def _stacked(figure: str, remark: str) -> str:
    """Return a cell with a small remark below its text."""
    return Markup('{}<span class="interval">{}</span>').format(figure, remark) if remark else figure
