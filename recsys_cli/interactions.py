"""Who met what, when, and how it went: all that baselines, rankings and models without features learn from."""

from __future__ import annotations

from dataclasses import dataclass

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
        times: When, in the units of the data, int64, shape (N,); None where the data has no timestamp.
        mean: Of labels that are numbers, their mean in train; None where labels are 0 or 1.
    """

    user_idx: npt.NDArray[np.int32]
    item_idx: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]
    drawn: npt.NDArray[np.bool_] | None = None
    times: npt.NDArray[np.int64] | None = None
    mean: float | None = None

    def __len__(self) -> int:
        return len(self.user_idx)

    def __add__(self, other: Interactions) -> Interactions:
        """Return the rows of both, one after the other."""
        return Interactions(
            np.concatenate([self.user_idx, other.user_idx]),
            np.concatenate([self.item_idx, other.item_idx]),
            np.concatenate([self.labels, other.labels]),
            None if self.drawn is None or other.drawn is None else np.concatenate([self.drawn, other.drawn]),
            None if self.times is None or other.times is None else np.concatenate([self.times, other.times]),
            self.mean,
        )

    @property
    def positive(self) -> npt.NDArray[np.bool_]:
        """Which rows are for the item: those with label 1, or where labels are numbers those above the mean of train; (N,)."""
        return self.labels > (0.5 if self.mean is None else self.mean)

    def met(self) -> Interactions:
        """Return the rows that happened, without the drawn ones: those that a ranking is about."""
        return self if self.drawn is None else self.chosen(~self.drawn)

    def chosen(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Interactions:
        """Return some of the rows, which happened: by a mask, or by their places."""
        times = None if self.times is None else self.times[rows]
        return Interactions(self.user_idx[rows], self.item_idx[rows], self.labels[rows], None, times, self.mean)
