"""The page of a bench: the leaderboard, and a figure of the models with their intervals."""

from __future__ import annotations

from markupsafe import Markup

from recsys_cli.evaluation.compare.leaderboard import AGAIN, Leaderboard, LeaderboardRow, failures_in_words, in_words
from recsys_cli.evaluation.compare.page import probability
from recsys_cli.metrics.named import ARROWS, better_of, title_of
from recsys_cli.page import Axis, IntervalBar, intervals, render

_BEST, _OTHERS, _BASELINES = 1, 2, 5


def show(found: Leaderboard) -> str:
    """Write the page as one HTML document that loads nothing."""
    titles = [f"{title_of(metric)} {ARROWS[better_of(metric)]}".rstrip() for metric in found.metrics]
    return render(
        "leaderboard.html.j2",
        package=__package__,
        found=found,
        title=title_of(found.metric),
        sentence=in_words(found),
        figure=standings(found),
        failures=failures_in_words(found),
        again=AGAIN,
        head=["", "model", *titles, "difference", "p (Holm)", "seeds", "seconds", "parameters"],
        rows=[_row(one, found) for one in found.standings],
    )


def standings(found: Leaderboard) -> Markup:
    """Draw the models from best to worst, with their intervals."""
    drawn = [
        IntervalBar(one.label, score.value, score.low, score.high, _colour(one))
        for one in found.standings
        for score in [one.scores[found.metric]]
        if score.value is not None and score.low is not None and score.high is not None
    ]
    title = title_of(found.metric)
    names = [(_BEST, "the best, and what cannot be told apart from it"), (_OTHERS, "others"), (_BASELINES, "baselines")]
    there = {one.color for one in drawn}
    axis = Axis(f"{title}, with 95 % interval")
    return intervals(f"Models by {title}", drawn, x=axis, names=[one for one in names if one[0] in there])


def _colour(one: LeaderboardRow) -> int:
    if one.place == 1 or one.is_same_as_best:
        return _BEST
    return _BASELINES if one.is_baseline else _OTHERS


def _row(one: LeaderboardRow, found: Leaderboard) -> list[str]:
    apart, seeds = one.from_best, len(found.seeds)
    figures = [one.scores[metric].in_words(seeds=seeds) for metric in found.metrics]
    return [
        str(one.place) if one.scores[found.metric].value is not None else "",
        one.called,
        *(_over(mean, f"± {deviation}" if deviation else "") for mean, deviation in figures),
        "" if apart is None else _over(f"{apart.value:+.4f}", f"[{apart.low:+.4f}, {apart.high:+.4f}]"),
        "" if apart is None else _over(probability(apart.p_holm), "not significant" if one.is_same_as_best else ""),
        one.seeds_in_words(seeds=seeds),
        "" if one.seconds is None else f"{one.seconds:,.1f}",
        "" if one.parameters is None else f"{one.parameters:,}",
    ]


def _over(figure: str, remark: str) -> str:
    """Write a remark small below a figure."""
    return Markup('{}<span class="interval">{}</span>').format(figure, remark) if remark else figure
