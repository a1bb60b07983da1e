"""Metrics of a system per user and per row, and paired tests of two systems on them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.intervals import Clusters, Impressions, Spread, by_owner, jackknife, mean_estimates, widened
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL
from recsys_cli.frozen import Frozen
from recsys_cli.metrics import RANKING, Hits, ImpressionMetric, PointwiseMetric
from recsys_cli.metrics.foreign import SAMPLED, extended, metric_of
from recsys_cli.metrics.metric import Floats
from recsys_cli.metrics.named import COMPARED, TASKS, better_of
from recsys_cli.packages import optimize

_DIGITS = 12
"""Decimal places of differences: sums of the same gains in another order are equal."""
NO_SPREAD = Spread(0.0)
"""Spread over seeds of systems without a seed, or with a single one."""


class PairedTest(Frozen):
    """The difference of two systems, with its 95 % confidence interval and two-sided p-value, not corrected."""

    value: float
    low: float
    high: float
    p: float


def by_users(differences: Floats, *, resamples: int, seed: int) -> list[PairedTest]:
    """Test the means of differences (U, M): intervals by the paired bootstrap over users, p-values by the t test."""
    differences = differences.round(_DIGITS)
    estimates = mean_estimates(differences, resamples=resamples, seed=seed)
    tests = [by_means(column) for column in differences.T]
    return [
        tested
        if mean.low is None or mean.high is None
        else tested.model_copy(update={"low": mean.low, "high": mean.high})
        for tested, mean in zip(tests, estimates, strict=True)
    ]


def by_means(differences: Floats, seed_spread: Spread = NO_SPREAD) -> PairedTest:
    """Test the mean of differences (U,), with the spread over training seeds.

    A rank test is a test of symmetry: two systems with equal means can differ in it, one with few hits at the top and one
    with many further down.
    """
    value, number = float(differences.mean()), len(differences)
    return _tested(value, jackknife((differences - value) / number, np.full(number, 1 / number)), seed_spread)


def holm(p: Sequence[float], *, hypotheses: int | None = None) -> list[float]:
    """Return Holm-corrected p-values, chosen from `hypotheses` if given: they limit the family-wise error rate (Holm, 1979).

    The smallest of n p-values is multiplied by n, the next by n - 1, and so on; corrected values keep the order.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = np.minimum(1.0, values[order] * ((hypotheses or len(values)) - np.arange(len(values))))
    corrected = np.empty_like(values)
    corrected[order] = np.maximum.accumulate(steps) if len(steps) else steps
    return [float(value) for value in corrected]


def _tested(value: float, users: Spread, seeds: Spread) -> PairedTest:
    """Test a value with errors of users and of seeds: the squares of their margins add up.

    With two seeds, Welch-Satterthwaite degrees of freedom of the sum would cover 87 % instead of 95 % (tested by simulation).
    """

    def reach(p: float) -> float:
        return math.hypot(users.reach(p), seeds.reach(p))

    margin, least = reach(0.05), 1e-12
    if not seeds.error:
        p = users.p(value)
    else:
        p = float(optimize.brentq(lambda p: reach(p) - abs(value), least, 1.0)) if abs(value) < reach(least) else least
    return PairedTest(value=value, low=value - margin, high=value + margin, p=p)


Unit = Literal["users", "rows", "impressions"]


@dataclass(frozen=True)
class Outcomes:
    """Metrics of one system per user and per row.

    Attributes:
        users: By name, such as `ndcg@10`: the metric of each user, in order of hashes; shape (U,). Empty without
            rankings.
        rows: By name, such as `log_loss`: the value of each row (see `metrics.metric.ByRow`), shape (N,). Of metrics per
            impression the value of each impression, shape (G,).
        labels: Whether the main label of each row is 1, or for numeric labels other than 0; shape (N,).
        seeds: By name: standard error of the metric over training seeds. Empty for a single run.
        impressions: Clusters of the impressions.
    """

    users: dict[str, Floats]
    rows: dict[str, Floats]
    labels: npt.NDArray[np.bool_]
    clusters: Clusters
    seeds: Mapping[str, Spread] = field(default_factory=dict)
    impressions: Clusters | None = None

    @classmethod
    def of(cls, rankings: Rankings, *, system: str = MODEL, metrics: Collection[str] | None = None) -> Outcomes:
        """Compute the outcomes of the model or a baseline; baselines have no rows. None takes all metrics."""
        labels, rows = rankings.labels != 0, _by_row(rankings, rankings.labels != 0, metrics) if system == MODEL else {}
        impressions = None
        if rows and rankings.row_impressions is not None:
            impressions = Impressions.of(rankings.row_impressions, rankings.labels, rankings.row_clusters)
            values = impressions.values(rankings.labels, rankings.logits)
            rows |= {name: value for name, value in values.items() if metrics is None or name in metrics}
        return cls(
            users=_by_user(rankings, system, metrics) if system in rankings.hits and len(rankings.users) else {},
            rows=rows,
            labels=labels,
            clusters=Clusters.of(rankings.row_clusters),
            impressions=None if impressions is None else impressions.clusters,
        )

    @classmethod
    def of_users(cls, users: dict[str, Floats]) -> Outcomes:
        """Return outcomes of rankings only: metrics by name, each (U,)."""
        return cls(users, {}, np.empty(0, np.bool_), Clusters(np.empty(0, np.int64), 0))

    @classmethod
    def mean(cls, several: Sequence[Outcomes]) -> Outcomes:
        """Return the mean over runs of one model with different seeds."""
        first = several[0]
        return replace(
            first,
            users={name: np.mean([one.users[name] for one in several], axis=0) for name in first.users},
            rows={name: np.mean([one.rows[name] for one in several], axis=0) for name in first.rows},
            seeds={name: _over_seeds(several, name) for name in first.metrics} if len(several) > 1 else {},
        )

    @property
    def metrics(self) -> dict[str, Unit]:
        """Units of the metrics by name."""
        of_rows: dict[str, Unit] = {name: "impressions" if _of_impressions(name) else "rows" for name in self.rows}
        return {**dict.fromkeys(self.users, "users"), **of_rows}

    def only(self, metrics: Container[str]) -> Outcomes:
        """Return the outcomes of some metrics."""
        users, rows = (
            {name: values for name, values in part.items() if name in metrics} for part in (self.users, self.rows)
        )
        return replace(self, users=users, rows=rows)

    def value(self, metric: str) -> float:
        """Return a metric over all users or rows."""
        if metric in self.users:
            return float(self.users[metric].mean())
        chosen = self.rows[metric]
        summary = _summary(metric)
        mean = float((chosen[self.labels] if summary == "class means" else chosen).mean())
        return math.sqrt(mean) if summary == "root mean" else mean

    def contributions(self, metric: str) -> Floats:
        """Return the influence of each user on a metric; shape (U,) or (C,)."""
        if metric in self.users:
            values = self.users[metric]
            return (values - values.mean()) / len(values)
        values, clusters = self.rows[metric], self._clusters(metric)
        if _summary(metric) == "class means":
            return clusters.sums(self._class_weights * (values - self.value(metric)))
        slope = 1 / (2 * self.value(metric)) if _summary(metric) == "root mean" and values.any() else 1.0
        return clusters.sums((values - values.mean()) * slope / len(values))

    def minus(self, other: Outcomes, metrics: Sequence[str], *, resamples: int, seed: int) -> dict[str, PairedTest]:
        """Test the differences from another system on the same users and rows; see `paired`."""
        seeds = {name: self._seed_spread(name) + other._seed_spread(name) for name in metrics}
        of_users = [name for name in metrics if name in self.users and not seeds[name].error]
        tests: dict[str, PairedTest] = {}
        if of_users:
            differences = np.stack([self.users[name] - other.users[name] for name in of_users], axis=1)
            tests |= zip(of_users, by_users(differences, resamples=resamples, seed=seed), strict=True)
        for name in metrics:
            if name in self.rows:
                tests[name] = self._of_rows(name, other, seeds[name])
            elif name in self.users and name not in tests:
                tests[name] = by_means(self.users[name] - other.users[name], seeds[name])
        return tests

    def interval(self, metric: str, *, resamples: int, seed: int) -> tuple[float, float]:
        """Return the 95 % confidence interval of a metric, over users and seeds."""
        users, rows = ({metric: np.zeros_like(of[metric])} if metric in of else {} for of in (self.users, self.rows))
        nothing = replace(self, users=users, rows=rows, seeds={})
        tested = self.minus(nothing, [metric], resamples=resamples, seed=seed)[metric]
        if metric in self.users:
            return widened((tested.low, tested.high), len(self.users[metric]))
        return max(0.0, tested.low), min(1.0 if better_of(metric) == "higher" else math.inf, tested.high)

    def _clusters(self, metric: str) -> Clusters:
        return self.impressions if self.impressions is not None and _of_impressions(metric) else self.clusters

    def _seed_spread(self, metric: str) -> Spread:
        return self.seeds.get(metric, NO_SPREAD)

    @property
    def _class_weights(self) -> Floats:
        return np.where(self.labels, 1 / np.count_nonzero(self.labels), 1 / np.count_nonzero(~self.labels))

    def _of_rows(self, metric: str, other: Outcomes, seeds: Spread) -> PairedTest:
        """Test by the influence of each user on the difference.

        Of AUCs that is the test of DeLong, DeLong and Clarke-Pearson (1988) with placements summed by user (Obuchowski,
        1997), of roots of means the delta method.
        """
        of_classes = _summary(metric) == "class means"
        shares = self.clusters.sums(self._class_weights / 2) if of_classes else self._clusters(metric).shares()
        influence = self.contributions(metric) - other.contributions(metric)
        return _tested(self.value(metric) - other.value(metric), jackknife(influence, shares), seeds)


def _over_seeds(several: Sequence[Outcomes], metric: str) -> Spread:
    """Return the standard error of a mean over seeds, for effects common to all users.

    A seed's effects on single users already vary among users and are subtracted, as far as the number of seeds n tells the
    two apart: (n - 2) / (n - 1) of them, none with two seeds.
    """
    number = len(several)
    over_seeds = statistics.variance([one.value(metric) for one in several])
    within_users = float(np.var([one.contributions(metric) for one in several], axis=0, ddof=1).sum())
    common = over_seeds - within_users * (number - 2) / (number - 1)
    return Spread(math.sqrt(common / number), number - 1) if common > 0 else NO_SPREAD


def _by_user(rankings: Rankings, system: str, metrics: Collection[str] | None) -> dict[str, Floats]:
    order = np.argsort(rankings.user_hashes, kind="stable")
    hits = Hits(rankings.hits[system][order], rankings.num_relevant[order])
    owners = None if rankings.owners is None else rankings.owners[order]
    label = SAMPLED if rankings.sampled.shape[1] else ""
    names = {
        f"{label}{name}@{k}": (metric, k)
        for k in rankings.k
        for name, metric in extended(RANKING, metrics or ()).items()
    }
    return {
        name: by_owner(np.asarray(metric.compute(hits, k), dtype=np.float64), owners)
        for name, (metric, k) in names.items()
        if metrics is None or name in metrics
    }


def _by_row(rankings: Rankings, labels: npt.NDArray[np.bool_], metrics: Collection[str] | None) -> dict[str, Floats]:
    both_classes = 0 < np.count_nonzero(labels) < len(labels)
    return {
        name: metric.by_row.values(rankings.labels, rankings.logits)
        for name, metric in extended(TASKS[rankings.task].metrics, metrics or ()).items()
        if metric.by_row is not None
        and (metrics is None or name in metrics)
        and (both_classes if metric.by_row.summary == "class means" else len(labels))
    }


def _of_impressions(metric: str) -> bool:
    return isinstance(metric_of(metric), ImpressionMetric)


def _summary(metric: str) -> str:
    definition = COMPARED.get(metric) or metric_of(metric)
    return definition.by_row.summary if isinstance(definition, PointwiseMetric) and definition.by_row else "mean"
