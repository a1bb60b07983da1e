"""The item mean baseline: how much is this item liked in general?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.baselines.baseline import log_odds
from recsys_cli.evaluation.baselines.constant import ConstantBaseline
from recsys_cli.interactions import Interactions

SMOOTHING = 5.0
"""Every item starts with so many rows of the overall mean."""


@dataclass(frozen=True)
class ItemMean:
    """Predicts an item's mean label in train, drawn towards the overall mean where there are few rows.

    Attributes:
        means: By item id, shape (num_items,).
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
        """Return each row's item's logit."""
        return log_odds(self.means[rows.item_idx])
