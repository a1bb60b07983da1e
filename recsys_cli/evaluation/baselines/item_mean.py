"""The item mean baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.baselines.baseline import log_odds
from recsys_cli.evaluation.baselines.constant import ConstantBaseline
from recsys_cli.interactions import Interactions

SMOOTHING = 5.0
"""Pseudo-rows with the overall mean, added to every item."""


@dataclass(frozen=True)
class ItemMean:
    """Predicts an item's mean label in train, shrunk towards the overall mean.

    Attributes:
        means: Mean by item id, shape (num_items,).
    """

    means: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> ItemMean:
        """Average the labels of each item."""
        overall = ConstantBaseline.fit(train, num_items=num_items).mean
        rows = np.bincount(train.item_idx, minlength=num_items)
        positive = np.bincount(train.item_idx, weights=train.labels, minlength=num_items)
        return cls((positive + SMOOTHING * overall) / (rows + SMOOTHING))

    def logits(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return the logit of each row's item."""
        return log_odds(self.means[rows.item_idx])
