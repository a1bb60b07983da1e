"""Metrics per impression, with intervals over users: the figures of MIND (Wu et al., ACL 2020).

Equal to its evaluation script for scores without ties. Impressions of one class have no AUC: the script stops at them,
and here they are left out of all metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.clusters import Clusters
from recsys_cli.evaluation.result import Estimates
from recsys_cli.evaluation.row_intervals import mean_estimate
from recsys_cli.metrics import IMPRESSION
from recsys_cli.metrics.metric import Floats, RankedImpressions
from recsys_cli.metrics.named import impression_names

Ints = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Impressions:
    """The G impressions with clicked and other candidates.

    Attributes:
        rows: Indices of their rows among all rows, shape (M,).
        index: Impression of each of them, shape (M,).
        clusters: Impressions by user; of an impression, the user of its first row.
        left_out: Impressions of one class.
    """

    rows: npt.NDArray[np.intp]
    index: Ints
    clusters: Clusters
    left_out: int

    @classmethod
    def of(cls, numbers: Ints, labels: npt.NDArray[Any], row_clusters: Ints) -> Impressions:
        """Group rows by the number of their impression, -1 for none; each (N,)."""
        rows = np.flatnonzero(numbers >= 0)
        index = np.unique(numbers[rows], return_inverse=True)[1]
        sizes, clicked = np.bincount(index), np.bincount(index, weights=labels[rows] > 0.5)
        both = (clicked > 0) & (clicked < sizes)
        rows, index = rows[both[index]], (np.cumsum(both) - 1)[index[both[index]]]
        first = rows[np.unique(index, return_index=True)[1]]
        return cls(rows, index, Clusters.of(row_clusters[first]), int(np.count_nonzero(~both)))

    def values(self, labels: npt.NDArray[Any], scores: npt.NDArray[np.floating]) -> dict[str, Floats]:
        """Return the metrics of each impression by name, each (G,), from labels and scores of all rows (N,)."""
        if not len(self.rows):
            return {}
        ranked = RankedImpressions.of(self.index, labels[self.rows], scores[self.rows])
        names = ((metric, name, k) for metric in IMPRESSION.values() for name, k in impression_names(metric).items())
        return {name: metric.compute(ranked, k) for metric, name, k in names}

    def estimates(self, labels: npt.NDArray[Any], scores: npt.NDArray[np.floating]) -> Estimates:
        """Return the mean of each metric over impressions, with its interval over users."""
        return {name: mean_estimate(values, self.clusters) for name, values in self.values(labels, scores).items()}

    @property
    def note(self) -> str:
        """The impressions in a sentence."""
        left_out = f" {self.left_out:,} of one class are left out." if self.left_out else ""
        return (
            f"Metrics per impression are means over the {len(self.clusters.index):,} impressions with clicked and other "
            f"candidates, with intervals over users; ties count as their average.{left_out}"
        )
