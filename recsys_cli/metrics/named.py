"""What a metric's name means where one is chosen by name: `auc` is a metric, `ndcg@10` a ranking metric and its cut-off."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from recsys_cli.errors import ConfigError
from recsys_cli.metrics import BEYOND, GROUPED, POINTWISE, RANKING
from recsys_cli.metrics.metric import Better, PointwiseMetric, RankingMetric
from recsys_cli.registry import suggest

MAX_CUT_OFF = 10_000
"""The longest ranking: its memory is users times cut-off."""

LOSS = "loss"
"""What a model minimises: no metric of evaluation, and a figure that one may go by all the same."""


SAMPLED = "sampled_"
"""What the names of figures of sampled candidates begin with."""


ARROWS: Mapping[Better | None, str] = {"higher": "↑", "lower": "↓", "one": "→1", None: ""}
"""Which values are better, as tables show it."""

Ends = tuple[float | None, float | None, float | None]
"""A figure, and the lower and the upper end of its interval; None for what there is not."""


@dataclass(frozen=True)
class CutOff:
    """A ranking metric over the first k places."""

    metric: RankingMetric
    k: int


def find_metric(name: str) -> PointwiseMetric | CutOff | None:
    """Return what a name such as `auc` or `ndcg@10` stands for; None for `loss`.

    Raises:
        ConfigError: There is no such metric, or it lacks a cut-off, or has one that it does not take.
    """
    if name == LOSS:
        return None
    base, at, _ = name.partition("@")
    if base in RANKING:
        return CutOff(RANKING[base], _cut_off(name))
    if base in POINTWISE:
        if at:
            raise ConfigError(f"{base} takes no cut-off, and {name} has one")
        return POINTWISE[base]
    raise _unknown(name, [LOSS, *POINTWISE], RANKING)


def check_figure(name: str) -> None:
    """Make sure that an evaluation has a figure of a name: what `find_metric` knows, and what only a whole evaluation measures.

    Raises:
        ConfigError: It has not.
    """
    base, at, _ = name.partition("@")
    if base in GROUPED and not at:
        return
    if name == LOSS:
        raise ConfigError(f"{LOSS} is what training minimises, and no figure of an evaluation")
    if base in BEYOND:
        _cut_off(name)
    elif base in POINTWISE or base in RANKING:
        find_metric(name)
    else:
        raise _unknown(name, [*POINTWISE, *GROUPED], [*RANKING, *BEYOND])


def _unknown(name: str, plain: Collection[str], with_cut_off: Collection[str]) -> ConfigError:
    cut_off = name.partition("@")[2] or "10"
    near = suggest(name, [*plain, *(f"{metric}@{cut_off}" for metric in with_cut_off)])
    known = ", ".join([*plain, *(f"{metric}@K" for metric in with_cut_off)])
    return ConfigError(f"unknown metric {name!r}{near}; known: {known}")


def _cut_off(name: str) -> int:
    base, at, cut_off = name.partition("@")
    if not at:
        raise ConfigError(f"{name} needs a cut-off, such as {name}@10")
    if not (cut_off.isascii() and cut_off.isdecimal() and int(cut_off)):
        raise ConfigError(f"the cut-off of {name} has to be a whole number from 1, such as {base}@10")
    if int(cut_off) > MAX_CUT_OFF:
        raise ConfigError(f"the cut-off of {name} is more than {MAX_CUT_OFF:,}")
    return int(cut_off)


def title_of(name: str) -> str:
    """Return what a figure of an evaluation is called in tables, such as `NDCG@10` or `sampled NDCG@10`."""
    metric, at, k = name.removeprefix(SAMPLED).partition("@")
    known = POINTWISE.get(metric) or GROUPED.get(metric) or RANKING.get(metric) or BEYOND.get(metric)
    title = f"{known.title}{at}{k}" if known else name.removeprefix(SAMPLED)
    return f"sampled {title}" if name.startswith(SAMPLED) else title


def better_of(name: str) -> Better | None:
    """Return which values of a figure of an evaluation are better; None where that is for the reader to say."""
    metric = name.removeprefix(SAMPLED).partition("@")[0]
    known = POINTWISE.get(metric) or BEYOND.get(metric)
    return known.better if known else "higher"


def badness(value: float | None, better: Better | None) -> float:
    """Return what is smaller the better a value is; a figure that is not defined is the worst."""
    if value is None:
        return math.inf
    if better == "one":  # half as much is as wrong as twice as much
        return abs(math.log(value)) if value > 0 else math.inf
    return value if better == "lower" else -value


def best_of(figures: Sequence[Ends], better: Better | None) -> list[bool]:
    """Return which of several figures are the best: the best value, and all whose interval overlaps that of it.

    Nothing is the best of a single figure, or where no value is better than another.

    Args:
        figures: Of several systems.
        better: Which values are better.
    """
    known = [figure for figure in figures if figure[0] is not None]
    if len(known) < 2 or better is None:
        return [False] * len(figures)
    value, low, high = min(known, key=lambda figure: badness(figure[0], better))

    def is_best(one: Ends) -> bool:
        if one[0] is None or one[0] == value:
            return one[0] is not None
        if one[1] is None or one[2] is None or low is None or high is None:
            return False
        return one[1] <= high and low <= one[2]

    return [is_best(one) for one in figures]
