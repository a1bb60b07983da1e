"""The HTML pages of comparisons and leaderboards."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from recsys_cli.evaluation.compare.comparison import METHOD, NAMES, Comparison, Verdict, probability, table_of
from recsys_cli.evaluation.compare.leaderboard import (
    LEVEL_NOTE,
    RETRY_NOTE,
    Leaderboard,
    LeaderboardRow,
    failures_in_words,
    in_words,
    one_table,
    variant_table,
)
from recsys_cli.metrics.named import heading_of, title_of
from recsys_cli.page import Axis, IntervalBar, intervals, render, stacked

_COLOURS: Mapping[Verdict, int] = {"better": 1, "worse": 2, "noise": 5}


def comparison_page(comparison: Comparison) -> str:
    """Return the page as one self-contained HTML document."""
    return render(
        "compare.html.j2",
        package=__package__,
        comparison=comparison,
        method=METHOD,
        shown={label: (differences(comparison, label), *table_of(comparison, label)) for label in comparison.others},
        runs=[[comparison.called(run.label), run.model, run.dataset, run.run, run.data] for run in comparison.runs],
        dataset=", ".join(dict.fromkeys(run.dataset for run in comparison.runs)),
    )


def differences(comparison: Comparison, label: str) -> Markup:
    """Plot a run's differences from the reference by metric; all runs share the axis."""
    ends = [end for figure in comparison.figures for one in figure.differences.values() for end in (one.low, one.high)]
    bars = [
        IntervalBar(figure.title, one.value, one.low, one.high, _COLOURS[one.verdict])
        for figure in comparison.figures
        for one in [figure.differences[label]]
    ]
    axis = Axis(
        f"{label} minus {comparison.against}, with 95 % confidence interval", low=min(*ends, 0.0), high=max(*ends, 0.0)
    )
    names = {colour: NAMES[verdict] for verdict, colour in _COLOURS.items()}
    return intervals(f"{label} minus {comparison.against}", bars, x=axis, names=names)


_BEST, _OTHERS, _BASELINES = 1, 2, 5
_LEGEND = {
    _BEST: "the best, and models without a significant difference from it", _OTHERS: "others", _BASELINES: "baselines",
}  # fmt: skip


def leaderboard_page(board: Leaderboard) -> str:
    """Return the page as one self-contained HTML document."""
    return render(
        "leaderboard.html.j2",
        package=__package__,
        board=board,
        title=title_of(board.metric),
        sentence=in_words(board),
        figure=standings(board),
        failures=failures_in_words(board),
        retry_note=RETRY_NOTE,
        published=board.published and one_table(board.standings, board.published, board.metrics),
        level_note=LEVEL_NOTE,
        variants=variant_table(board),
        head=[
            "",
            "model",
            *map(heading_of, board.metrics),
            "difference",
            "p (Holm)",
            "coverage",
            "seeds",
            "seconds",
            "parameters",
        ],
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
    return intervals(f"Models by {title}", marks, x=axis, names=_LEGEND)


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
        *(stacked(mean, f"± {deviation}" if deviation else "") for mean, deviation in figures),
        ""
        if difference is None
        else stacked(f"{difference.value:+.4f}", f"[{difference.low:+.4f}, {difference.high:+.4f}]"),
        ""
        if difference is None
        else stacked(probability(difference.p_holm), "not significant" if one.is_same_as_best else ""),
        "" if one.coverage is None else f"{one.coverage:.4f}",
        one.seeds_in_words(seeds=seeds),
        "" if one.seconds is None else f"{one.seconds:,.1f}",
        "" if one.parameters is None else f"{one.parameters:,}",
    ]
