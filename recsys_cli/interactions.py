"""Who met what, when, and how it went: all that baselines, rankings and models without features learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Interactions:
    """The rows of one or more splits, in file order.

    Attributes:
        user_idx: Encoded users, shape (N,).
        item_idx: Encoded items, shape (N,).
        labels: The main label, 0 or 1, or a number in units of its own; shape (N,), float32.
        drawn: Which rows were drawn by NegativeSampling, shape (N,); None where there are none.
        times: When, in the unit of the data (`Schema.ticks`), int64 or float64, shape (N,); None where the data has no timestamp.
        mean: Of labels that are numbers, their mean in train; None where labels are 0 or 1.
        row_numbers: Each row's number in the raw input, shape (N,), which orders rows of one time; None where it is not known.
    """

    user_idx: npt.NDArray[np.int32]
    item_idx: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]
    drawn: npt.NDArray[np.bool_] | None = None
    times: npt.NDArray[np.int64] | npt.NDArray[np.float64] | None = None
    mean: float | None = None
    row_numbers: npt.NDArray[np.integer] | None = None

    def __len__(self) -> int:
        return len(self.user_idx)

    def __add__(self, other: Interactions) -> Interactions:
        """Return the rows of both, one after the other."""
        return Interactions(
            np.concatenate([self.user_idx, other.user_idx]),
            np.concatenate([self.item_idx, other.item_idx]),
            np.concatenate([self.labels, other.labels]),
            None if self.drawn is None or other.drawn is None else np.concatenate([self.drawn, other.drawn]),
            _both(self.times, other.times),
            self.mean,
            _both(self.row_numbers, other.row_numbers),
        )

    def chronological(self) -> npt.NDArray[np.intp]:
        """Return the places of the rows in the order of (user, time, row number): the one order of histories; shape (N,)."""
        order = _by_number(self.row_numbers, len(self))
        keys = (self.user_idx,) if self.times is None else (self.times, self.user_idx)
        return order[
            np.lexsort([key[order] for key in keys])
        ]  # stable: what is equal stays in the order of the numbers

    @property
    def task(self) -> Literal["binary", "regression"]:
        """The task of the main label."""
        return "binary" if self.mean is None else "regression"

    @property
    def positive(self) -> npt.NDArray[np.bool_]:
        """Which rows are for the item: those with label 1, or where labels are numbers those above the mean of train; (N,)."""
        return self.labels > (0.5 if self.mean is None else self.mean)

    def observed(self) -> Interactions:
        """Return the rows that happened, without the drawn ones: those that a ranking is about."""
        return self if self.drawn is None else self.chosen(~self.drawn)

    def chosen(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Interactions:
        """Return some of the rows, which happened: by a mask, or by their places."""
        times = None if self.times is None else self.times[rows]
        numbers = None if self.row_numbers is None else self.row_numbers[rows]
        return Interactions(
            self.user_idx[rows], self.item_idx[rows], self.labels[rows], None, times, self.mean, numbers
        )


def _both(one: npt.NDArray[Any] | None, other: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    return None if one is None or other is None else np.concatenate([one, other])


def _by_number(numbers: npt.NDArray[np.integer] | None, rows: int) -> npt.NDArray[np.intp]:
    """Return the places of rows by their numbers, which are mostly close together: then each is put where it belongs."""
    if numbers is None or not rows:
        return np.arange(rows)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < 4 * rows:
        place_of = np.full(high - low + 1, -1, dtype=np.intp)
        place_of[numbers - low] = np.arange(rows)
        order = place_of[place_of >= 0]
        if len(order) == rows:
            return order
    return np.argsort(numbers, kind="stable")
