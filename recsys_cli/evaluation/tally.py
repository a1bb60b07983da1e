"""Rows grouped by score: all that the pointwise metrics need to know of them, and cheap to resample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tally:
    """How many positive and negative rows have each score, in R weightings of the same rows (1 for the rows as they are).

    Attributes:
        logits: The scores, ascending; shape (G,).
        positive: Rows with label 1; shape (R, G).
        negative: Rows with label 0; shape (R, G).
    """

    logits: Floats
    positive: Floats
    negative: Floats

    @classmethod
    def of(cls, labels: npt.NDArray[np.float32], logits: npt.ArrayLike) -> Tally:
        """Group rows by score, exactly: one group for each distinct score; labels (N,) and logits (N,)."""
        scores, group = np.unique(np.asarray(logits, dtype=np.float64), return_inverse=True)
        positive = np.bincount(group, weights=labels, minlength=len(scores)).astype(np.float64)
        rows = np.bincount(group, minlength=len(scores)).astype(np.float64)
        return cls(scores, positive[None], (rows - positive)[None])

    @property
    def rows(self) -> Floats:
        """Rows of each score, shape (R, G)."""
        return self.positive + self.negative

    @property
    def probabilities(self) -> Floats:
        """The scores as probabilities, shape (G,)."""
        return 1 / (1 + np.exp(-np.clip(self.logits, -700, 700)))

    def quantiles(self, groups: int) -> npt.NDArray[np.int64]:
        """Deal the scores to groups of equal mass, never splitting a score; shape (R, G), each below `groups`."""
        rows = self.rows
        middle = np.cumsum(rows, axis=1) - rows / 2
        total = np.maximum(rows.sum(axis=1, keepdims=True), 1)
        return np.minimum((middle * (groups / total)).astype(np.int64), groups - 1)

    def compressed(self, groups: int) -> Tally:
        """Merge neighbouring scores into at most `groups`, each with the mean score of its rows; for a single weighting."""
        if len(self.logits) <= groups:
            return self
        group = self.quantiles(groups)[0]
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        positive, negative = (np.add.reduceat(counts[0], starts) for counts in (self.positive, self.negative))
        total = np.add.reduceat(self.logits * self.rows[0], starts)
        return Tally(total / (positive + negative), positive[None], negative[None])

    def resampled(self, rng: np.random.Generator, resamples: int) -> Tally:
        """Draw resamples of the rows: each row appears Poisson(1) times, so a group of n rows has Poisson(n) of them.

        The Poisson bootstrap (Hanley and MacGibbon, 2006; Chamandy et al., 2012) stands for drawing rows with
        replacement at a cost of the number of groups, whatever the number of rows.
        """
        shape = (resamples, len(self.logits))
        return Tally(
            self.logits,
            rng.poisson(self.positive, shape).astype(float),
            rng.poisson(self.negative, shape).astype(float),
        )
