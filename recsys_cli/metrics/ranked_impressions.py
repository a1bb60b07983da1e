"""Given candidates by impression and descending score: the input of the metrics per impression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.score_counts import Floats, count_runs, run_starts


@dataclass(frozen=True)
class RankedImpressions:
    """Ranked candidates of G impressions, each with clicked and other candidates.

    A function of the rank is averaged over tied candidates (McSherry and Najork, ECIR 2008), so that neither the order
    of the rows nor a sort changes a metric.

    Attributes:
        rank: Rank of each candidate within its impression, from 0; shape (M,).
        runs: First row of each run of equal scores, shape (S,).
        clicked, rows: Clicked and all rows of each run; shape (S,).
        first: First run of each impression, shape (G,).
    """

    rank: Floats
    runs: npt.NDArray[np.intp]
    clicked: Floats
    rows: Floats
    first: npt.NDArray[np.intp]

    @classmethod
    def of(
        cls, impression: npt.NDArray[np.integer], labels: npt.NDArray[np.floating], scores: npt.NDArray[np.floating]
    ) -> RankedImpressions:
        """Rank the candidates (M,) of impressions numbered from 0; label 1 is a click."""
        order = np.lexsort((-scores, impression))
        impression, scores = impression[order], scores[order]
        runs, starts = run_starts(impression, scores), run_starts(impression)
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        clicked, rows = count_runs(labels[order] > 0.5, runs)
        return cls(rank.astype(np.float64), runs, clicked, rows, run_starts(impression[runs]))

    @property
    def num_clicked(self) -> Floats:
        """Clicked candidates of each impression, shape (G,)."""
        return np.add.reduceat(self.clicked, self.first)

    @property
    def num_candidates(self) -> Floats:
        """Candidates of each impression, shape (G,)."""
        return np.add.reduceat(self.rows, self.first)

    def clicked_sum(self, values: Floats) -> Floats:
        """Sum values by rank (M,) over the clicked candidates of each impression; shape (G,)."""
        means = np.add.reduceat(values, self.runs) / self.rows
        return np.add.reduceat(means * self.clicked, self.first)
