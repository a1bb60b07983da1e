"""Paired tests: how far a difference between two systems on the same users or rows could be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.bootstrap import mean_estimates
from recsys_cli.evaluation.clusters import Clusters, Spread, jackknife
from recsys_cli.metrics.score_counts import Floats

_DIGITS = 12
"""Differences are rounded to so many digits before they are ranked: sums of the same gains in another order are ties."""
NO_CHANCE = Spread(0.0)
"""Of systems without a seed, or with a single one, whose spread nobody knows."""


@dataclass(frozen=True)
class PairedTest:
    """A difference of two systems.

    Attributes:
        value: The mean difference.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p: How often chance alone would give a difference that is as large, two-sided; not corrected for other tests.
    """

    value: float
    low: float
    high: float
    p: float


def by_users(differences: Floats, *, resamples: int, seed: int) -> list[PairedTest]:
    """Test columns of differences, one row a user: intervals by the paired bootstrap, p by Wilcoxon's test.

    Args:
        differences: One system's figure less the other's; shape (U, M), U at least 1.
        resamples: How often U users are drawn with replacement; all columns see the same draws.
        seed: Decides the draws.
    """
    estimates = mean_estimates(differences, resamples=resamples, seed=seed)
    values = differences.mean(axis=0)
    return [
        PairedTest(
            float(value),
            float(value) if found.low is None else found.low,
            float(value) if found.high is None else found.high,
            wilcoxon(column),
        )
        for value, found, column in zip(values, estimates, differences.T, strict=True)
    ]


def by_means(differences: Floats, chance: Spread) -> PairedTest:
    """Test the mean difference over users where training varies from seed to seed.

    Ranks would not do: the seeds move all users of a system together.

    Args:
        differences: Each user's, of figures averaged over seeds; shape (U,), U at least 1.
        chance: Spread of the mean difference over the seeds of training.
    """
    users = Clusters(np.arange(len(differences)), len(differences))
    return by_rows(differences, users, chance)


def wilcoxon(differences: Floats) -> float:
    """Return p of the signed-rank test (Wilcoxon, 1945): are the differences symmetric about zero?

    Zeros are left out, as Wilcoxon did. The distribution is the normal one with continuity correction.

    Args:
        differences: Shape (U,).
    """
    from scipy import stats  # half a second, and `compare` alone needs it

    rounded = differences.round(_DIGITS)
    if not rounded.any():
        return 1.0
    return float(stats.wilcoxon(rounded, zero_method="wilcox", correction=True, method="asymptotic").pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Correct the p of several tests for their number, so that all of them together err in at most 5 of 100 cases at 0.05.

    Holm (1979): the smallest is multiplied by their number, the next by one less, and so on; none may come out below one
    that was smaller.
    """
    found = np.asarray(p, dtype=np.float64)
    order = np.argsort(found, kind="stable")
    steps = np.minimum(1.0, found[order] * np.arange(len(found), 0, -1))
    corrected = np.empty_like(found)
    corrected[order] = np.maximum.accumulate(steps) if len(steps) else steps
    return [float(value) for value in corrected]


def by_placements(
    differences: Floats, labels: npt.NDArray[np.bool_], clusters: Clusters, chance: Spread = NO_CHANCE
) -> PairedTest:
    """Test the difference of two AUC of the same rows.

    The test of DeLong, DeLong and Clarke-Pearson (1988) with placements summed by user (Obuchowski, 1997).

    Args:
        differences: One system's `row_placements` less the other's; shape (N,).
        labels: Shape (N,), with rows of both classes.
        clusters: Which rows are of one user.
        chance: Spread of the difference over the seeds of training.
    """
    classes = [labels.astype(np.float64), (~labels).astype(np.float64)]
    weights = sum(chosen / chosen.sum() for chosen in classes)
    value = float(differences[labels].mean())
    return _tested(
        value, jackknife(clusters.sums(weights * (differences - value)), clusters.sums(weights / 2)) + chance
    )


def by_rows(differences: Floats, clusters: Clusters, chance: Spread = NO_CHANCE) -> PairedTest:
    """Test the mean difference over rows, from the sums of each user's.

    Ranks would not do: the mean of a log loss depends on a few rows, which a test of ranks does not look at.

    Args:
        differences: Shape (N,), N at least 1.
        clusters: Which rows are of one user.
        chance: Spread of the difference over the seeds of training.
    """
    value = float(differences.mean())
    return _tested(value, _spread_of_mean(differences, clusters) + chance)


def by_roots(own: Floats, other: Floats, clusters: Clusters, chance: Spread = NO_CHANCE) -> PairedTest:
    """Test the difference of two roots of means over the same rows, such as RMSE from squared errors.

    By the slope of the root (the delta method).

    Args:
        own: What one system's root is of, 0 or more; shape (N,), N at least 1.
        other: The other's.
        clusters: Which rows are of one user.
        chance: Spread of the difference over the seeds of training.
    """
    roots = math.sqrt(own.mean()), math.sqrt(other.mean())
    slopes = [1 / (2 * root) if root else 0.0 for root in roots]
    weighted = own * slopes[0] - other * slopes[1]
    return _tested(roots[0] - roots[1], _spread_of_mean(weighted, clusters) + chance)


def _spread_of_mean(values: Floats, clusters: Clusters) -> Spread:
    return jackknife(clusters.sums(values - values.mean()) / len(values), clusters.shares())


def _tested(value: float, spread: Spread) -> PairedTest:
    return PairedTest(value, value - spread.margin, value + spread.margin, spread.p(value))
