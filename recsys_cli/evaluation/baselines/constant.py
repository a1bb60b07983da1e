"""The constant baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.baselines.baseline import log_odds
from recsys_cli.interactions import Interactions


@dataclass(frozen=True)
class ConstantBaseline:
    """Predicts the mean label of train for every row."""

    mean: float

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> ConstantBaseline:
        """Average the labels; 0.5 without rows."""
        del num_items
        return cls(float(train.labels.mean(dtype=np.float64)) if len(train) else 0.5)

    def logits(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return the same logit for every row."""
        return log_odds(self.numbers(rows))

    def numbers(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return the mean for every row."""
        return np.full(len(rows), self.mean)
