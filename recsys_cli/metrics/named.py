"""Metrics by name: `auc`, or a ranking metric with a cut-off such as `ndcg@10`; the metrics of each type of label."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from recsys_cli import plugins
from recsys_cli.errors import ConfigError
from recsys_cli.metrics import BEYOND, GROUPED, IMPRESSION, OF_NUMBERS, OPTIONAL, POINTWISE, RANKING
from recsys_cli.metrics.foreign import LOSS, SAMPLED, foreign, metric_named, metric_of
from recsys_cli.metrics.metric import Better, ImpressionMetric, ListMetric, PointwiseMetric, RankingMetric
from recsys_cli.registry import suggest

MAX_CUT_OFF = 10_000
"""Longest ranking; memory grows with users × cut-off."""

ARROWS: Mapping[Better | None, str] = {"higher": "↑", "lower": "↓", "one": "→1", None: ""}
"""Direction of a metric, as a symbol in tables."""

IntervalEstimate = tuple[float | None, float | None, float | None]
"""Value, lower and upper end of its interval; None if absent."""


@dataclass(frozen=True)
class CutOff:
    """Ranking metric at a cut-off."""

    metric: RankingMetric
    k: int


def find_metric(name: str) -> PointwiseMetric | CutOff | None:
    """Return the metric of a name such as `auc` or `ndcg@10`; None for `loss`.

    Raises:
        ConfigError: Unknown metric, missing cut-off, or a cut-off for a metric without one.
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


def check_reported(name: str) -> None:
    """Check that an evaluation reports a metric: those of `find_metric`, `gauc` and the beyond-accuracy metrics."""
    if name == LOSS:
        raise ConfigError(f"{LOSS} is the training objective, not an evaluation metric")
    metric = metric_named(name.partition("@")[0])
    if isinstance(metric, ListMetric):
        _cut_off(name)
    elif isinstance(metric, PointwiseMetric | RankingMetric):
        find_metric(name)
    elif isinstance(metric, ImpressionMetric):
        if name not in impression_names(metric):
            raise ConfigError(f"{name} is not measured; there are {', '.join(impression_names(metric))}")
    elif metric is None or "@" in name:
        of_impressions = [each for one in IMPRESSION.values() for each in impression_names(one)]
        raise _unknown(name, [*POINTWISE, *GROUPED, *of_impressions], [*RANKING, *BEYOND])


def check_additional(name: str, *, of_numbers: bool) -> None:
    """Check a name in `evaluate.metrics`: an optional metric or one of another package, without a cut-off, for the main label."""
    if "@" in name:
        raise ConfigError(f"{name} has a cut-off; evaluate.k sets the cut-offs of all metrics")
    metric = foreign(name)
    if metric is None:
        added, others = [*OPTIONAL, *plugins.declared("metric").names], [*POINTWISE, *GROUPED, *RANKING, *BEYOND]
        near = suggest(name, [*added, *others])
        what = f"{name} is always reported" if metric_named(name) else f"unknown metric {name!r}{near}"
        takes = f"this key takes {', '.join(OPTIONAL)} and metrics of plugins (docs/plugins.md)"
        raise ConfigError(f"{what}; {takes}; the others of `recsys ls metrics` are always reported")
    if isinstance(metric, PointwiseMetric) and metric.of_errors != of_numbers:
        needed = "numeric" if metric.of_errors else "binary"
        raise ConfigError(f"{name} needs a {needed} label")


def _unknown(name: str, plain: Collection[str], with_cut_off: Collection[str]) -> ConfigError:
    cut_off = name.partition("@")[2] or "10"
    others = plugins.declared("metric").names
    near = suggest(name, [*plain, *others, *(f"{metric}@{cut_off}" for metric in [*with_cut_off, *others])])
    known = [*plain, *(f"{metric}@K" for metric in with_cut_off)]
    return ConfigError(f"unknown metric {name!r}{near}; known: {', '.join(known)}")


def _cut_off(name: str) -> int:
    base, at, cut_off = name.partition("@")
    if not at:
        raise ConfigError(f"{name} needs a cut-off, such as {name}@10")
    if not (cut_off.isascii() and cut_off.isdecimal() and int(cut_off)):
        raise ConfigError(f"the cut-off of {name} has to be a whole number from 1, such as {base}@10")
    if int(cut_off) > MAX_CUT_OFF:
        raise ConfigError(f"the cut-off of {name} exceeds {MAX_CUT_OFF:,}")
    return int(cut_off)


def impression_names(metric: ImpressionMetric) -> dict[str, int | None]:
    """Return the reported names of a metric per impression, such as `impression_ndcg@5`, with their cut-offs."""
    return {metric.name if k is None else f"{metric.name}@{k}": k for k in metric.cut_offs}


def title_of(name: str) -> str:
    """Return the title of a metric, such as `NDCG@10` or `sampled NDCG@10`."""
    _, at, k = name.partition("@")
    metric = metric_of(name)
    title = f"{metric.title}{at}{k}" if metric else name.removeprefix(SAMPLED)
    return f"sampled {title}" if name.startswith(SAMPLED) else title


def heading_of(name: str) -> str:
    """Return the title of a metric with its direction, for tables."""
    return f"{title_of(name)} {ARROWS[better_of(name)]}".rstrip()


def figure(value: float | None) -> str:
    """Return a value of a metric for tables; a dash if it is undefined."""
    return "–" if value is None else f"{value:.4f}"


def better_of(name: str) -> Better | None:
    """Return the direction of a metric; None if neither end is better."""
    metric = metric_of(name)
    return metric.better if isinstance(metric, PointwiseMetric | ListMetric) else "higher"


def sort_key(value: float | None, better: Better | None) -> float:
    """Return a sort key: better values first, undefined ones last."""
    if value is None:
        return math.inf
    if better == "one":  # 0.5 is as far from 1 as 2
        return abs(math.log(value)) if value > 0 else math.inf
    return value if better == "lower" else -value


def best_of(estimates: Sequence[IntervalEstimate], better: Better | None) -> list[bool]:
    """Mark the best of several values, and all with an interval that overlaps the interval of the best.

    Nothing is marked without a direction, where all would be, as for a single value, and where the best value is 0 hits.
    """
    defined = [one for one in estimates if one[0] is not None]
    if len(defined) < 2 or better is None:
        return [False] * len(estimates)
    value, low, high = min(defined, key=lambda one: sort_key(one[0], better))

    def is_best(one: IntervalEstimate) -> bool:
        if one[0] is None or one[0] == value:
            return one[0] is not None
        if one[1] is None or one[2] is None or low is None or high is None:
            return False
        return one[1] <= high and low <= one[2]

    best = [is_best(one) for one in estimates]
    return [False] * len(best) if all(best) or (better == "higher" and value == 0) else best


@dataclass(frozen=True)
class LabelTask:
    """Metrics of one type of label.

    Attributes:
        headlines: Names for a short table; the first is the default metric, always measured in validation.
        leaderboard: Names for a bench without `bench.metrics`.
    """

    metrics: Mapping[str, PointwiseMetric]
    headlines: tuple[str, ...]
    leaderboard: tuple[str, ...]

    @property
    def default(self) -> PointwiseMetric:
        """Default monitored metric."""
        return self.metrics[self.headlines[0]]


BINARY = LabelTask(POINTWISE, headlines=("auc", "gauc", "log_loss"), leaderboard=("ndcg@10", "recall@10", "auc"))
REGRESSION = LabelTask(OF_NUMBERS, headlines=("rmse", "mae"), leaderboard=("rmse", "mae", "ndcg@10"))
TASKS: Mapping[str, LabelTask] = {"binary": BINARY, "regression": REGRESSION}
"""Metrics by label task (`features.label`)."""

COMPARED: Mapping[str, PointwiseMetric] = {
    metric.name: metric for task in TASKS.values() for metric in task.metrics.values() if metric.by_row is not None
}
"""Pointwise metrics with paired tests, by name."""


def headlines(names: Collection[str]) -> tuple[str, ...]:
    """Return the headline metrics among names of pointwise metrics."""
    return tuple(name for name in (BINARY if BINARY.default.name in names else REGRESSION).headlines if name in names)
