"""Rows grouped by score: all that the pointwise metrics need to know of them, and cheap to resample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.features.hashing import hash_counters, mix

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

    @classmethod
    def of_errors(cls, labels: npt.NDArray[np.float32], predictions: npt.ArrayLike) -> Tally:
        """Group rows by how far a prediction is above the label, both (N,): all that figures of numbers need to know."""
        errors = np.asarray(predictions, dtype=np.float64) - labels
        return cls.of(np.ones(len(errors), np.float32), errors)

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

    def resampled(self, resamples: range, *, seed: int) -> Tally:
        """Draw resamples of the rows: each row appears Poisson(1) times, so a group of n rows has Poisson(n) of them.

        The Poisson bootstrap (Hanley and MacGibbon, 2006; Chamandy et al., 2012) stands for drawing rows with
        replacement at a cost of the number of groups, whatever the number of rows. What is drawn for a group depends on
        its place among all rows and on nothing else: scores that differ in their last digit, as those of another batch
        size do, change the draws of their own groups and leave all others as they are.

        Args:
            resamples: Numbers of the resamples; each is the same whatever others are drawn with it.
            seed: Decides the draws.
        """
        rows = self.rows[0]
        place = (np.cumsum(rows) - rows / 2).astype(np.uint64)
        positive, negative = (
            _poisson(counts[0], np.stack([_uniform(place, mix(seed, number, stream)) for number in resamples]))
            for stream, counts in enumerate((self.positive, self.negative))
        )
        return Tally(self.logits, positive, negative)


def _uniform(counters: npt.NDArray[np.uint64], key: int) -> Floats:
    """Return a number between 0 and 1, exclusive, for each counter."""
    return ((hash_counters(counters, key) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _poisson(means: Floats, uniform: Floats) -> Floats:
    """Return Poisson numbers by inverting the distribution function; whole means (G,), uniform numbers (R, G)."""
    drawn = np.zeros_like(uniform)
    for mean in np.unique(means[means > 0]):
        k = np.arange(int(mean + 10 * np.sqrt(mean) + 20))
        log_mass = k * np.log(mean) - mean - np.cumsum(np.log(np.maximum(k, 1)))
        columns = np.flatnonzero(means == mean)
        drawn[:, columns] = np.searchsorted(np.cumsum(np.exp(log_mass)), uniform[:, columns])
    return drawn
