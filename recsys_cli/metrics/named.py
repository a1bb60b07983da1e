"""What a metric's name means where one is chosen by name: `auc` is a metric, `ndcg@10` a ranking metric and its cut-off."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from recsys_cli.errors import ConfigError
from recsys_cli.metrics import BEYOND, GROUPED, POINTWISE, RANKING
from recsys_cli.metrics.foreign import LOSS, SAMPLED, foreign, metric_named, metric_of
from recsys_cli.metrics.metric import Better, ListMetric, PointwiseMetric, RankingMetric
from recsys_cli.registry import suggest

MAX_CUT_OFF = 10_000
"""The longest ranking: its memory is users times cut-off."""

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
    metric = metric_named(base)
    if isinstance(metric, RankingMetric):
        return CutOff(metric, _cut_off(name))
    if isinstance(metric, PointwiseMetric):
        if at:
            raise ConfigError(f"{base} takes no cut-off, and {name} has one")
        return metric
    raise _unknown(name, [LOSS, *POINTWISE], RANKING)


def check_figure(name: str) -> None:
    """Make sure that an evaluation has a figure of a name: what `find_metric` knows, and what only a whole evaluation measures.

    Raises:
        ConfigError: It has not.
    """
    if name == LOSS:
        raise ConfigError(f"{LOSS} is what training minimises, and no figure of an evaluation")
    metric = metric_named(name.partition("@")[0])
    if isinstance(metric, ListMetric):
        _cut_off(name)
    elif isinstance(metric, PointwiseMetric | RankingMetric):
        find_metric(name)
    elif metric is None or "@" in name:
        raise _unknown(name, [*POINTWISE, *GROUPED], [*RANKING, *BEYOND])


def check_extra(name: str, *, of_numbers: bool) -> None:
    """Make sure that a name is that of a further metric for `evaluate.metrics`: one of another package.

    Args:
        name: Without a cut-off.
        of_numbers: Whether the main label is a number.

    Raises:
        ConfigError: It is not, or the metric is of another label task.
    """
    if "@" in name:
        raise ConfigError(f"{name} has a cut-off, and evaluate.k has those of all metrics")
    metric = foreign(name)
    if metric is None:
        if metric_named(name) is not None:
            raise ConfigError(f"{name} is measured in any case; this key is for metrics of other packages")
        raise ConfigError(f"unknown metric {name!r}; this key takes metrics of other packages (docs/security.md)")
    if isinstance(metric, PointwiseMetric) and metric.of_errors != of_numbers:
        needed = "is a number" if metric.of_errors else "is 0 or 1"
        raise ConfigError(f"{name} needs a label that {needed}")


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
    _, at, k = name.partition("@")
    known = metric_of(name)
    title = f"{known.title}{at}{k}" if known else name.removeprefix(SAMPLED)
    return f"sampled {title}" if name.startswith(SAMPLED) else title


def better_of(name: str) -> Better | None:
    """Return which values of a figure of an evaluation are better; None where that is for the reader to say."""
    metric = metric_of(name)
    return metric.better if isinstance(metric, PointwiseMetric | ListMetric) else "higher"


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
