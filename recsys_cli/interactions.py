"""Interactions: the data of baselines, rankings and models without features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recsys_cli.features.schema import FIRST


@dataclass(frozen=True)
class Interactions:
    """Interactions of one or more splits, in file order.

    Attributes:
        labels: Main label, binary or numeric, float32, shape (N,).
        sampled: Mask of the negatives added by NegativeSampling, shape (N,); None without sampled negatives.
        times: Timestamps in the unit of the data (`Schema.ticks`), int64 or float64, shape (N,); None without timestamps.
        mean: Mean of a numeric label in train; None for a binary label.
        row_numbers: Row numbers in the raw input, shape (N,); order rows of equal time. None if unknown.
        weights: Weight of each row (`features.weight`), float32, shape (N,); None for ones.
    """

    user_idx: npt.NDArray[np.int32]
    item_idx: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]
    sampled: npt.NDArray[np.bool_] | None = None
    times: npt.NDArray[np.int64] | npt.NDArray[np.float64] | None = None
    mean: float | None = None
    row_numbers: npt.NDArray[np.integer] | None = None
    weights: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.user_idx)

    def __add__(self, other: Interactions) -> Interactions:
        """Return the concatenated rows."""
        return Interactions(
            np.concatenate([self.user_idx, other.user_idx]),
            np.concatenate([self.item_idx, other.item_idx]),
            np.concatenate([self.labels, other.labels]),
            None if self.sampled is None or other.sampled is None else np.concatenate([self.sampled, other.sampled]),
            _both(self.times, other.times),
            self.mean,
            _both(self.row_numbers, other.row_numbers),
            _both(self.weights, other.weights),
        )

    def chronological(self) -> npt.NDArray[np.intp]:
        """Return the row indices ordered by (user, time, row number), the order of all user histories."""
        order = _by_number(self.row_numbers, len(self))
        keys = (self.user_idx,) if self.times is None else (self.times, self.user_idx)
        # lexsort is stable: rows with equal keys stay ordered by row number
        return order[np.lexsort([key[order] for key in keys])]

    def by_user(self, num_users: int) -> tuple[Interactions, npt.NDArray[np.int64]]:
        """Return the rows of users below `num_users` and items with ids of their own, in order of their histories, and the offsets.

        The rows of a user start at the user's offset; int64, shape (num_users + 1,).
        """
        kept = self.chosen((self.user_idx >= FIRST) & (self.user_idx < num_users) & (self.item_idx >= FIRST))
        offsets = np.zeros(num_users + 1, np.int64)
        np.cumsum(np.bincount(kept.user_idx, minlength=num_users), out=offsets[1:])
        return kept.chosen(kept.chronological()), offsets

    @property
    def task(self) -> Literal["binary", "regression"]:
        """The task of the main label."""
        return "binary" if self.mean is None else "regression"

    @property
    def positive(self) -> npt.NDArray[np.bool_]:
        """Mask of positives: label 1, or a numeric label above its mean in train; shape (N,)."""
        return self.labels > (0.5 if self.mean is None else self.mean)

    def observed(self) -> Interactions:
        """Return the real interactions, without sampled negatives."""
        return self if self.sampled is None else self.chosen(~self.sampled)

    def counted(self) -> Interactions:
        """Return the real interactions without those of weight 0."""
        return self if self.weights is None else self.chosen(self.weights > 0)

    def chosen(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Interactions:
        """Return some of the real interactions, by mask or indices."""
        times = None if self.times is None else self.times[rows]
        numbers = None if self.row_numbers is None else self.row_numbers[rows]
        weights = None if self.weights is None else self.weights[rows]
        return Interactions(
            self.user_idx[rows], self.item_idx[rows], self.labels[rows], None, times, self.mean, numbers, weights
        )


def _both(one: npt.NDArray[Any] | None, other: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    return None if one is None or other is None else np.concatenate([one, other])


def _by_number(numbers: npt.NDArray[np.integer] | None, rows: int) -> npt.NDArray[np.intp]:
    """Return the row indices ordered by row number: a counting sort for dense numbers."""
    if numbers is None or not rows:
        return np.arange(rows)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < 4 * rows:
        index_of = np.full(high - low + 1, -1, dtype=np.intp)
        index_of[numbers - low] = np.arange(rows)
        order = index_of[index_of >= 0]
        if len(order) == rows:
            return order
    return np.argsort(numbers, kind="stable")
