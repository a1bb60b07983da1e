"""Cluster-robust standard errors: rows of one user are not independent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from recsys_cli.features.schema import FIRST
from recsys_cli.metrics.metric import Floats


@dataclass(frozen=True)
class Clusters:
    """Groups of dependent rows.

    Attributes:
        index: Cluster of each row, below `count`; shape (N,).
        count: Number of clusters, C.
    """

    index: npt.NDArray[np.int64]
    count: int

    @classmethod
    def of_users(cls, user_idx: npt.NDArray[np.integer]) -> Clusters:
        """Cluster rows by user (N,); a row without a distinct user is its own cluster."""
        index = user_idx.astype(np.int64)
        without_id = index < FIRST
        index[without_id] = -1 - np.arange(np.count_nonzero(without_id))
        return cls.of(index)

    @classmethod
    def of(cls, index: npt.NDArray[np.integer]) -> Clusters:
        """Renumber clusters from 0. If all rows are of one cluster, each row becomes its own."""
        values, dense = np.unique(index, return_inverse=True)
        if len(values) == 1:
            return cls(np.arange(len(index)), len(index))
        return cls(dense.astype(np.int64), len(values))

    def sums(self, values: npt.NDArray[np.floating] | npt.NDArray[np.bool_] | None = None) -> Floats:
        """Sum values (N,) by cluster, or count rows; shape (C,)."""
        return np.bincount(self.index, weights=values, minlength=self.count).astype(np.float64)

    def shares(self) -> Floats:
        """Return each cluster's share of all rows; shape (C,)."""
        return self.sums() / max(1, len(self.index))


def by_owner(values: Floats, owners: npt.NDArray[np.integer] | None) -> Floats:
    """Return one value per user from values of several rankings per user (U,) or (U, M), by `owners` (U,).

    Their mean is that of the rankings, and their variance that of the mean over users (linearized ratio of sums).
    """
    if owners is None or not len(values):
        return values
    index, first = np.unique(owners, return_inverse=True)[1], values.mean(axis=0)
    sums = np.zeros((int(index.max()) + 1, *values.shape[1:]))
    np.add.at(sums, index, values - first)
    return np.asarray(first + sums * (len(sums) / len(values)))


@dataclass(frozen=True)
class Spread:
    """The standard error of a metric, with its degrees of freedom."""

    error: float
    freedom: float = math.inf

    @property
    def margin(self) -> float:
        """Half the width of a 95 % confidence interval."""
        return self.reach(0.05)

    def reach(self, p: float) -> float:
        """Return the distance from zero with a two-sided p-value."""
        return 0.0 if not self.error else -float(stdtrit(self.freedom, p / 2)) * self.error

    def p(self, distance: float) -> float:
        """Return the two-sided p-value of a distance from zero.

        At least that of a sign test in which all clusters agree, because few clusters have equal values by chance.
        """
        if abs(distance) < 1e-12:
            return 1.0
        equal = self.error <= abs(distance) * 1e-12
        p = 0.0 if equal else 2 * float(stdtr(self.freedom, -abs(distance) / self.error))
        return max(p, 2**-self.freedom)

    def __add__(self, other: Spread) -> Spread:
        """Return the error of a sum of independent values, with Welch-Satterthwaite degrees of freedom (1946)."""
        variances = self.error**2, other.error**2
        total = sum(variances)
        if not total:
            return Spread(0.0)
        freedom = (self.freedom, other.freedom)
        spent = sum(variance**2 / free for variance, free in zip(variances, freedom, strict=True))
        return Spread(math.sqrt(total), max(1.0, total**2 / spent) if spent else math.inf)


def jackknife(sums: Floats, shares: Floats) -> Spread:
    """Return the standard error of a metric from the influence of each cluster.

    The delete-one-cluster jackknife of a linearized metric, also known as CR3 (MacKinnon, Nielsen and Webb, 2023).
    Degrees of freedom are Kish's effective number of clusters less one, because a few users with most of the rows are
    few clusters. `sums` (C,) are influence values summed by cluster, with total zero; `shares` (C,) weights with sum
    1.
    """
    if len(sums) < 2:
        return Spread(0.0, 0.0)
    scaled = sums / np.maximum(1 - shares, 1e-9)
    variance = (len(sums) - 1) / len(sums) * float(scaled @ scaled)
    return Spread(math.sqrt(variance), max(1.0, 1 / float(shares @ shares) - 1))
