"""The popularity baseline: the same ranking for everybody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.interactions import Interactions


@dataclass(frozen=True)
class Popularity:
    """Ranks items by how many rows of train they have.

    Attributes:
        counts: By item id, shape (num_items,).
    """

    counts: npt.NDArray[np.int64]

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> Popularity:
        """Count the rows of each item, whatever their label."""
        return cls(np.bincount(train.item_idx, minlength=num_items))

    def scores(self, user_idx: npt.NDArray[np.int64], item_idx: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the counts once for each user, shape (U, I)."""
        # Counts above 2**24 would lose their last digits as float32; the ranking breaks such ties by the exact count.
        return np.broadcast_to(self.counts[item_idx].astype(np.float32), (len(user_idx), len(item_idx)))
