"""How well a system did, user by user and row by row: what a difference between two systems can be tested on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.clusters import Clusters, Spread
from recsys_cli.evaluation.compare.paired import (
    NO_CHANCE,
    PairedTest,
    by_means,
    by_placements,
    by_roots,
    by_rows,
    by_users,
)
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL
from recsys_cli.metrics import RANKING, Hits, PointwiseMetric
from recsys_cli.metrics.foreign import SAMPLED, extended, metric_of
from recsys_cli.metrics.label_task import COMPARED, TASKS
from recsys_cli.metrics.named import better_of
from recsys_cli.metrics.score_counts import Floats

Unit = Literal["users", "rows"]


@dataclass(frozen=True)
class Outcomes:
    """What one system came to.

    Attributes:
        users: By name, such as `ndcg@10`: a figure for each user, in the order of their hashes; shape (U,). None where nothing
            was ranked.
        rows: By name, such as `log_loss`: the value of each row (see `metrics.metric.ByRow`), shape (N,).
        labels: Whether the main label of each row is 1 (of a number, other than 0), shape (N,).
        clusters: Which rows are of one user.
        seeds: By name: how far the figure is from that of another draw of seeds. None where there is a single run.
    """

    users: dict[str, Floats]
    rows: dict[str, Floats]
    labels: npt.NDArray[np.bool_]
    clusters: Clusters
    seeds: Mapping[str, Spread] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Rankings, *, system: str = MODEL, metrics: Collection[str] | None = None) -> Outcomes:
        """Work out what a system came to.

        Args:
            found: What an evaluation has kept.
            system: The model, or one of the baselines, of which there are no rows.
            metrics: The figures that are wanted; None for all.
        """
        labels = found.labels != 0
        return cls(
            users=_by_user(found, system, metrics) if system in found.hits and len(found.users) else {},
            rows=_by_row(found, labels, metrics) if system == MODEL else {},
            labels=labels,
            clusters=Clusters.of(found.row_clusters),
        )

    @classmethod
    def of_users(cls, users: dict[str, Floats]) -> Outcomes:
        """Return outcomes of rankings alone; by name, each (U,)."""
        return cls(users, {}, np.empty(0, np.bool_), Clusters(np.empty(0, np.int64), 0))

    @classmethod
    def mean(cls, several: Sequence[Outcomes]) -> Outcomes:
        """Return the mean over several runs of one model, such as with other seeds: users stay users, and do not become more."""
        first = several[0]
        return replace(
            first,
            users={name: np.mean([one.users[name] for one in several], axis=0) for name in first.users},
            rows={name: np.mean([one.rows[name] for one in several], axis=0) for name in first.rows},
            seeds={name: _over_seeds(several, name) for name in first.metrics} if len(several) > 1 else {},
        )

    @property
    def metrics(self) -> dict[str, Unit]:
        """The figures that there are, and what each is a mean over."""
        return {**dict.fromkeys(self.users, "users"), **dict.fromkeys(self.rows, "rows")}

    def only(self, metrics: Container[str]) -> Outcomes:
        """Return the same with some of the figures."""
        users, rows = (
            {name: values for name, values in found.items() if name in metrics} for found in (self.users, self.rows)
        )
        return replace(self, users=users, rows=rows)

    def value(self, metric: str) -> float:
        """Return a figure over all users or rows."""
        if metric in self.users:
            return float(self.users[metric].mean())
        chosen = self.rows[metric]
        summary = _summary(metric)
        mean = float((chosen[self.labels] if summary == "class means" else chosen).mean())
        return math.sqrt(mean) if summary == "root mean" else mean

    def contributions(self, metric: str) -> Floats:
        """Return what each user adds to the difference of a figure from its mean, to first order; shape (U,) or (C,)."""
        if metric in self.users:
            values = self.users[metric]
            return (values - values.mean()) / len(values)
        values = self.rows[metric]
        if _summary(metric) == "class means":
            centred = values - self.value(metric)
            weights = np.where(self.labels, 1 / np.count_nonzero(self.labels), 1 / np.count_nonzero(~self.labels))
            return self.clusters.sums(weights * centred)
        slope = 1 / (2 * self.value(metric)) if _summary(metric) == "root mean" and values.any() else 1.0
        return self.clusters.sums((values - values.mean()) * slope / len(values))

    def minus(self, other: Outcomes, metrics: Sequence[str], *, resamples: int, seed: int) -> dict[str, PairedTest]:
        """Test the differences from another system on the same users and rows; see `paired`.

        Args:
            other: The system to compare with.
            metrics: Which figures.
            resamples: For the bootstrap over users.
            seed: Decides its draws.
        """
        chance = {name: self._chance(name) + other._chance(name) for name in metrics}
        of_users = [name for name in metrics if name in self.users and not chance[name].error]
        found: dict[str, PairedTest] = {}
        if of_users:
            differences = np.stack([self.users[name] - other.users[name] for name in of_users], axis=1)
            found |= zip(of_users, by_users(differences, resamples=resamples, seed=seed), strict=True)
        for name in metrics:
            if name in self.rows:
                found[name] = self._tested(name, other.rows[name], chance[name])
            elif name in self.users and name not in found:
                found[name] = by_means(self.users[name] - other.users[name], chance[name])
        return found

    def interval(self, metric: str, *, resamples: int, seed: int) -> tuple[float, float]:
        """Return the 95 % interval of a figure, over users and seeds."""
        users, rows = ({metric: np.zeros_like(of[metric])} if metric in of else {} for of in (self.users, self.rows))
        nothing = replace(self, users=users, rows=rows, seeds={})
        tested = self.minus(nothing, [metric], resamples=resamples, seed=seed)[metric]
        most = 1.0 if better_of(metric) == "higher" else math.inf
        return max(0.0, tested.low), min(most, tested.high)

    def _chance(self, metric: str) -> Spread:
        return self.seeds.get(metric, NO_CHANCE)

    def _tested(self, name: str, other: Floats, chance: Spread) -> PairedTest:
        own, summary = self.rows[name], _summary(name)
        if summary == "root mean":
            return by_roots(own, other, self.clusters, chance)
        if summary == "class means":
            return by_placements(own - other, self.labels, self.clusters, chance)
        return by_rows(own - other, self.clusters, chance)


def _over_seeds(several: Sequence[Outcomes], metric: str) -> Spread:
    """Return the standard error of a mean over seeds: of what a seed does to all users together.

    What it does to each user by itself varies among users as well, and is counted there. The difference of the two is known less
    well than the spread of the seeds, so it has fewer degrees of freedom.
    """
    number = len(several)
    together = statistics.variance([one.value(metric) for one in several])
    by_itself = float(np.var([one.contributions(metric) for one in several], axis=0, ddof=1).sum())
    if together <= by_itself:
        return NO_CHANCE
    share = 1 - by_itself / together
    return Spread(math.sqrt(together * share / number), (number - 1) * share**2)


def _by_user(found: Rankings, system: str, metrics: Collection[str] | None) -> dict[str, Floats]:
    order = np.argsort(found.user_hashes, kind="stable")
    hits = Hits(found.hits[system][order], found.num_relevant[order])
    label = SAMPLED if found.drawn.shape[1] else ""
    names = {
        f"{label}{name}@{k}": (metric, k) for k in found.k for name, metric in extended(RANKING, metrics or ()).items()
    }
    return {
        name: np.asarray(metric.compute(hits, k), dtype=np.float64)
        for name, (metric, k) in names.items()
        if metrics is None or name in metrics
    }


def _by_row(found: Rankings, labels: npt.NDArray[np.bool_], metrics: Collection[str] | None) -> dict[str, Floats]:
    both_classes = 0 < np.count_nonzero(labels) < len(labels)
    return {
        name: metric.by_row.values(found.labels, found.logits)
        for name, metric in extended(TASKS[found.task].metrics, metrics or ()).items()
        if metric.by_row is not None
        and (metrics is None or name in metrics)
        and (both_classes if metric.by_row.summary == "class means" else len(labels))
    }


def _summary(metric: str) -> str:
    found = COMPARED.get(metric) or metric_of(metric)
    return found.by_row.summary if isinstance(found, PointwiseMetric) and found.by_row else "mean"
