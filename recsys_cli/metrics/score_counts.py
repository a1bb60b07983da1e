"""Rows grouped by score: the sufficient statistics of the pointwise metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoreCounts:
    """Number of positive and negative rows per distinct score.

    Attributes:
        logits: Scores, ascending; shape (G,).
        positive: Rows with label 1; shape (G,).
        negative: Rows with label 0; shape (G,).
    """

    logits: Floats
    positive: Floats
    negative: Floats

    @classmethod
    def of(cls, labels: npt.NDArray[np.float32], logits: npt.ArrayLike) -> ScoreCounts:
        """Group labels (N,) and logits (N,) by distinct score."""
        scores = np.asarray(logits)
        order = np.argsort(scores)
        starts = run_starts(scores[order])
        positive, rows = count_runs(labels[order], starts)
        return cls(scores[order][starts].astype(np.float64), positive, rows - positive)

    @classmethod
    def grouped(
        cls, labels: npt.NDArray[np.float32], logits: npt.ArrayLike
    ) -> tuple[ScoreCounts, npt.NDArray[np.int64]]:
        """Like `of`; also return the group of each row, shape (N,)."""
        scores, group = np.unique(np.asarray(logits, dtype=np.float64), return_inverse=True)
        positive = np.bincount(group, weights=labels, minlength=len(scores)).astype(np.float64)
        rows = np.bincount(group, minlength=len(scores)).astype(np.float64)
        return cls(scores, positive, rows - positive), group.astype(np.int64)

    @classmethod
    def of_errors(cls, labels: npt.NDArray[np.float32], predictions: npt.ArrayLike) -> ScoreCounts:
        """Group rows by signed error, prediction - label, in place of the score; both (N,)."""
        errors = np.asarray(predictions, dtype=np.float64) - labels
        return cls.of(np.ones(len(errors), np.float32), errors)

    @property
    def rows(self) -> Floats:
        """Rows of each score, shape (G,)."""
        return self.positive + self.negative

    @property
    def probabilities(self) -> Floats:
        """Sigmoid of the scores, shape (G,)."""
        return 1 / (1 + np.exp(-np.clip(self.logits, -700, 700)))

    def quantiles(self, groups: int) -> npt.NDArray[np.int64]:
        """Return the quantile group of each score, of equal mass; shape (G,)."""
        rows = self.rows
        middle = np.cumsum(rows) - rows / 2
        return np.minimum((middle * (groups / max(float(rows.sum()), 1.0))).astype(np.int64), groups - 1)

    def compressed(self, groups: int) -> ScoreCounts:
        """Merge neighboring scores into at most `groups`, each at the mean score of its rows."""
        if len(self.logits) <= groups:
            return self
        group = self.quantiles(groups)
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        positive, negative = (np.add.reduceat(rows, starts) for rows in (self.positive, self.negative))
        total = np.add.reduceat(self.logits * self.rows, starts)
        return ScoreCounts(total / (positive + negative), positive, negative)


def run_starts(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.intp]:
    """Return the index of the first row of each run of equal rows; columns (N,)."""
    changes = [values[1:] != values[:-1] for values in columns]
    return np.flatnonzero(np.append(np.ones(min(1, len(columns[0])), dtype=bool), np.logical_or.reduce(changes)))


def count_runs(labels: npt.NDArray[np.generic], starts: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return the number of positive rows and of all rows per run, from binary labels (N,)."""
    rows = np.diff(starts, append=len(labels)).astype(np.float64)
    return np.add.reduceat(labels, starts, dtype=np.float64), rows
