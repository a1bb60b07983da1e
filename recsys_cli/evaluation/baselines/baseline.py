"""What a baseline is: fitted on train rows, asked for the same figures as the model on the same rows."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from recsys_cli.interactions import Interactions


class PointwiseBaseline(Protocol):
    """Predicts how likely the labels of single rows are."""

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> PointwiseBaseline:
        """Learn from train rows; item ids are below `num_items`."""

    def logits(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return one logit a row, shape (N,); must not look at the labels."""


class NumberBaseline(Protocol):
    """Predicts the labels of single rows, which are numbers."""

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> NumberBaseline:
        """Learn from train rows; item ids are below `num_items`."""

    def numbers(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return one number a row, in the label's units, shape (N,); must not look at the labels."""


def log_odds(probability: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return logits of probabilities, finite also for 0 and 1."""
    clipped = np.clip(probability, 1e-6, 1 - 1e-6)
    return np.log(clipped / (1 - clipped))
