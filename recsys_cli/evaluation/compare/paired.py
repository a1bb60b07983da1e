"""Paired tests of two systems on the same users or rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from recsys_cli.evaluation.bootstrap import mean_estimates
from recsys_cli.evaluation.clusters import Clusters, Spread, jackknife
from recsys_cli.metrics.metric import Floats

_DIGITS = 12
"""Decimal places of differences: sums of the same gains in another order are equal."""
NO_SPREAD = Spread(0.0)
"""Spread over seeds of systems without a seed, or with a single one."""


@dataclass(frozen=True)
class PairedTest:
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
        tested if mean.low is None or mean.high is None else replace(tested, low=mean.low, high=mean.high)
        for tested, mean in zip(tests, estimates, strict=True)
    ]


def by_means(differences: Floats, seed_spread: Spread = NO_SPREAD) -> PairedTest:
    """Test the mean of differences (U,), with the spread over training seeds.

    A rank test is a test of symmetry: two systems with equal means can differ in it, one with few hits at the top and one
    with many further down.
    """
    users = Clusters(np.arange(len(differences)), len(differences))
    return by_rows(differences, users, seed_spread)


def holm(p: Sequence[float], *, hypotheses: int | None = None) -> list[float]:
    """Return Holm-corrected p-values: they limit the family-wise error rate (Holm, 1979).

    The smallest of n p-values is multiplied by n, the next by n - 1, and so on; corrected values keep the order.

    Args:
        p: The p-values.
        hypotheses: Number n of the family, for p-values chosen from more; None: these.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = np.minimum(1.0, values[order] * ((hypotheses or len(values)) - np.arange(len(values))))
    corrected = np.empty_like(values)
    corrected[order] = np.maximum.accumulate(steps) if len(steps) else steps
    return [float(value) for value in corrected]


def by_placements(
    differences: Floats, labels: npt.NDArray[np.bool_], clusters: Clusters, seed_spread: Spread = NO_SPREAD
) -> PairedTest:
    """Test the difference of two AUCs, from differences of `row_placements` (N,) of both classes.

    The test of DeLong, DeLong and Clarke-Pearson (1988) with placements summed by user (Obuchowski, 1997).
    """
    classes = [labels.astype(np.float64), (~labels).astype(np.float64)]
    weights = sum(chosen / chosen.sum() for chosen in classes)
    value = float(differences[labels].mean())
    users = jackknife(clusters.sums(weights * (differences - value)), clusters.sums(weights / 2))
    return _tested(value, users, seed_spread)


def by_rows(differences: Floats, clusters: Clusters, seed_spread: Spread = NO_SPREAD) -> PairedTest:
    """Test the mean of differences (N,), from sums by user."""
    value = float(differences.mean())
    return _tested(value, _spread_of_mean(differences, clusters), seed_spread)


def by_roots(own: Floats, other: Floats, clusters: Clusters, seed_spread: Spread = NO_SPREAD) -> PairedTest:
    """Test the difference of two roots of means of values (N,), such as RMSE from squared errors.

    Uses the derivative of the root (delta method).
    """
    roots = math.sqrt(own.mean()), math.sqrt(other.mean())
    slopes = [1 / (2 * root) if root else 0.0 for root in roots]
    weighted = own * slopes[0] - other * slopes[1]
    return _tested(roots[0] - roots[1], _spread_of_mean(weighted, clusters), seed_spread)


def _spread_of_mean(values: Floats, clusters: Clusters) -> Spread:
    return jackknife(clusters.sums(values - values.mean()) / len(values), clusters.shares())


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
        p = float(brentq(lambda p: reach(p) - abs(value), least, 1.0)) if abs(value) < reach(least) else least
    return PairedTest(value, value - margin, value + margin, p)
