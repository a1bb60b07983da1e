"""Cluster-robust standard errors: rows of one user are not independent of each other, so users are the unit of chance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from recsys_cli.features.schema import FIRST
from recsys_cli.metrics.score_counts import Floats


@dataclass(frozen=True)
class Clusters:
    """Groups of rows that depend on each other.

    Attributes:
        index: Cluster of each row, below `count`; shape (N,).
        count: Number of clusters, C.
    """

    index: npt.NDArray[np.int64]
    count: int

    @classmethod
    def of_users(cls, user_idx: npt.NDArray[np.integer]) -> Clusters:
        """Put rows of one user together; a row of a user without an id of its own is a cluster by itself.

        Args:
            user_idx: Encoded user of each row, shape (N,).
        """
        index = user_idx.astype(np.int64)
        alone = index < FIRST
        index[alone] = -1 - np.arange(np.count_nonzero(alone))
        return cls.of(index)

    @classmethod
    def of(cls, index: npt.NDArray[np.integer]) -> Clusters:
        """Number clusters from 0. The rows of a single user are all that there is, so each counts by itself."""
        values, dense = np.unique(index, return_inverse=True)
        if len(values) == 1:
            return cls(np.arange(len(index)), len(index))
        return cls(dense.astype(np.int64), len(values))

    def __len__(self) -> int:
        return len(self.index)

    def chosen(self, rows: npt.NDArray[np.bool_]) -> Clusters:
        """Return the clusters of some rows."""
        return Clusters.of(self.index[rows])

    def sums(self, values: npt.NDArray[np.floating] | npt.NDArray[np.bool_] | None = None) -> Floats:
        """Add up values (N,) by cluster, or count rows; shape (C,)."""
        return np.bincount(self.index, weights=values, minlength=self.count).astype(np.float64)

    def shares(self) -> Floats:
        """Return the share of all rows that each cluster has; shape (C,)."""
        return self.sums() / max(1, len(self.index))


@dataclass(frozen=True)
class Spread:
    """The standard error of a figure.

    Attributes:
        error: The standard error.
        freedom: Its degrees of freedom: how well it is known.
    """

    error: float
    freedom: float = math.inf

    @property
    def margin(self) -> float:
        """Half the width of a 95 % interval."""
        return float(stdtrit(self.freedom, 0.975)) * self.error

    def p(self, distance: float) -> float:
        """Return how often chance alone gives a distance from zero that is as large; two-sided."""
        if self.error <= abs(distance) * 1e-12:
            return 1.0 if abs(distance) < 1e-12 else 0.0
        return 2 * float(stdtr(self.freedom, -abs(distance) / self.error))

    def __add__(self, other: Spread) -> Spread:
        """Return the error of a sum of independent figures, with the degrees of freedom of Welch and Satterthwaite (1946)."""
        variances = self.error**2, other.error**2
        total = sum(variances)
        if not total:
            return Spread(0.0)
        freedom = (self.freedom, other.freedom)
        spent = sum(variance**2 / free for variance, free in zip(variances, freedom, strict=True))
        return Spread(math.sqrt(total), max(1.0, total**2 / spent) if spent else math.inf)


def jackknife(sums: Floats, shares: Floats) -> Spread:
    """Return the standard error of a figure from what each cluster adds to it.

    The delete-one-cluster jackknife of a linearized figure, also known as CR3 (MacKinnon, Nielsen and Webb, 2023), with Kish's
    effective number of clusters less one as degrees of freedom: a few users with most of the rows are few users.

    Args:
        sums: Influence values of the rows, added up by cluster; they add up to zero; shape (C,).
        shares: Weight of each cluster in the figure, adding up to 1; shape (C,).
    """
    if len(sums) < 2:
        return Spread(0.0)
    scaled = sums / np.maximum(1 - shares, 1e-9)
    variance = (len(sums) - 1) / len(sums) * float(scaled @ scaled)
    return Spread(math.sqrt(variance), max(1.0, 1 / float(shares @ shares) - 1))
