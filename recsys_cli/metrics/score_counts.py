"""Rows grouped by score: all that the pointwise metrics need to know of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoreCounts:
    """How many positive and negative rows have each score.

    Attributes:
        logits: The scores, ascending; shape (G,).
        positive: Rows with label 1; shape (G,).
        negative: Rows with label 0; shape (G,).
    """

    logits: Floats
    positive: Floats
    negative: Floats

    @classmethod
    def of(cls, labels: npt.NDArray[np.float32], logits: npt.ArrayLike) -> ScoreCounts:
        """Group rows by score, exactly: one group for each distinct score; labels (N,) and logits (N,)."""
        scores = np.asarray(logits)
        order = np.argsort(scores)
        starts = run_starts(scores[order])
        positive, rows = count_runs(labels[order], starts)
        return cls(scores[order][starts].astype(np.float64), positive, rows - positive)

    @classmethod
    def grouped(
        cls, labels: npt.NDArray[np.float32], logits: npt.ArrayLike
    ) -> tuple[ScoreCounts, npt.NDArray[np.int64]]:
        """Do the same, and return the group of each row as well; shape (N,)."""
        scores, group = np.unique(np.asarray(logits, dtype=np.float64), return_inverse=True)
        positive = np.bincount(group, weights=labels, minlength=len(scores)).astype(np.float64)
        rows = np.bincount(group, minlength=len(scores)).astype(np.float64)
        return cls(scores, positive, rows - positive), group.astype(np.int64)

    @classmethod
    def of_errors(cls, labels: npt.NDArray[np.float32], predictions: npt.ArrayLike) -> ScoreCounts:
        """Group rows by how far a prediction is above the label, both (N,): all that figures of numbers need to know."""
        errors = np.asarray(predictions, dtype=np.float64) - labels
        return cls.of(np.ones(len(errors), np.float32), errors)

    @property
    def rows(self) -> Floats:
        """Rows of each score, shape (G,)."""
        return self.positive + self.negative

    @property
    def probabilities(self) -> Floats:
        """The scores as probabilities, shape (G,)."""
        return 1 / (1 + np.exp(-np.clip(self.logits, -700, 700)))

    def quantiles(self, groups: int) -> npt.NDArray[np.int64]:
        """Deal the scores to groups of equal mass, never splitting a score; shape (G,), each below `groups`."""
        rows = self.rows
        middle = np.cumsum(rows) - rows / 2
        return np.minimum((middle * (groups / max(float(rows.sum()), 1.0))).astype(np.int64), groups - 1)

    def compressed(self, groups: int) -> ScoreCounts:
        """Merge neighbouring scores into at most `groups`, each with the mean score of its rows."""
        if len(self.logits) <= groups:
            return self
        group = self.quantiles(groups)
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        positive, negative = (np.add.reduceat(counts, starts) for counts in (self.positive, self.negative))
        total = np.add.reduceat(self.logits * self.rows, starts)
        return ScoreCounts(total / (positive + negative), positive, negative)


def run_starts(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.intp]:
    """Return the place of the first row of each run of equal rows; columns (N,)."""
    changes = [values[1:] != values[:-1] for values in columns]
    return np.flatnonzero(np.append(np.ones(min(1, len(columns[0])), dtype=bool), np.logical_or.reduce(changes)))


def count_runs(labels: npt.NDArray[np.generic], starts: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return the positive rows and all rows of each run; labels of 0 and 1, (N,)."""
    rows = np.diff(starts, append=len(labels)).astype(np.float64)
    return np.add.reduceat(labels, starts, dtype=np.float64), rows
