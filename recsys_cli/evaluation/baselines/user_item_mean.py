"""The user and item mean baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.interactions import Interactions

# RMSE on a held-out tenth of the train rows of MovieLens latest-small: 0.872; with 5: 0.875; with 10: 0.883.
SMOOTHING = 2.0
"""Pseudo-rows with residual zero, added to every user and item."""
ROUNDS = 10
"""Rounds of alternating least squares."""


@dataclass(frozen=True)
class UserItemMean:
    """Predicts mean + user bias + item bias: the baseline of Koren (TKDD 2010, section 2.1).

    Attributes:
        users: User biases by id, shape (U,). Ids from U on have no bias.
        items: Item biases by id, shape (num_items,).
    """

    mean: float
    users: npt.NDArray[np.float64]
    items: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> UserItemMean:
        """Fit the biases by alternating least squares, each shrunk towards 0."""
        mean = float(train.labels.mean(dtype=np.float64)) if len(train) else 0.0
        residuals = train.labels.astype(np.float64) - mean
        users, items = np.zeros(int(train.user_idx.max(initial=0)) + 1), np.zeros(num_items)
        for _ in range(ROUNDS):
            items = _bias(residuals - users[train.user_idx], train.item_idx, num_items)
            users = _bias(residuals - items[train.item_idx], train.user_idx, len(users))
        return cls(mean, users, items)

    def numbers(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return the predicted label of each row."""
        has_bias = rows.user_idx < len(self.users)
        of_user = np.where(has_bias, self.users[np.where(has_bias, rows.user_idx, 0)], 0.0)
        return self.mean + of_user + self.items[rows.item_idx]


def _bias(values: npt.NDArray[np.float64], ids: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.float64]:
    return np.bincount(ids, weights=values, minlength=size) / (np.bincount(ids, minlength=size) + SMOOTHING)
