"""Interfaces of pointwise baselines, fitted on train rows."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from recsys_cli.interactions import Interactions


class PointwiseBaseline(Protocol):
    """Predicts the probability that a row's label is 1."""

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> PointwiseBaseline:
        """Fit on train rows; item ids are below `num_items`."""

    def logits(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return one logit per row, shape (N,), without use of the labels."""


class NumberBaseline(Protocol):
    """Predicts numeric labels."""

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> NumberBaseline:
        """Fit on train rows; item ids are below `num_items`."""

    def numbers(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return one prediction per row in the label's unit, shape (N,), without use of the labels."""


def log_odds(probability: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return logits of probabilities, clipped to finite values."""
    clipped = np.clip(probability, 1e-6, 1 - 1e-6)
    return np.log(clipped / (1 - clipped))
