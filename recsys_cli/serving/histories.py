"""User histories by encoded user, in memory or memory-mapped, and with the feedback after training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.features.schema import FIRST
from recsys_cli.interactions import Interactions
from recsys_cli.serving.bundle_checks import read_array, read_offsets
from recsys_cli.serving.query import RecentInteraction

_FILES = ("offsets", "items", "labels", "times", "weights")


@dataclass(frozen=True)
class History:
    """The interactions of one user in chronological order.

    Attributes:
        items: Encoded items, or table rows of cold items; int32, shape (N,).
        labels: Main labels, float32, shape (N,).
        times: Timestamps in the unit of the data, shape (N,); None in data without timestamps.
        weights: Weights of the rows, float32, shape (N,); None for ones.
    """

    items: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]
    times: npt.NDArray[Any] | None
    weights: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.items)

    def picked(self, rows: slice | npt.NDArray[Any]) -> History:
        """Return the rows of a slice, a mask or indices."""
        return History(*[None if column is None else column[rows] for column in vars(self).values()])  # type: ignore[arg-type]

    def followed_by(self, others: Sequence[History]) -> History:
        """Return these rows and those of other histories."""
        parts = zip(*(vars(history).values() for history in (self, *others)), strict=True)
        return History(*[None if part[0] is None else np.concatenate(part) for part in parts])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Histories:
    """The interactions of all users as lists (CSR), each list in chronological order.

    Attributes:
        offsets: Start of each user's list by encoded user, then N; int64, shape (users + 1,).
        items, labels, times, weights: As in `History`, all lists concatenated; shape (N,).
        mean: Mean of a numeric label in train; None for a binary label.
    """

    offsets: npt.NDArray[np.int64]
    items: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]
    times: npt.NDArray[Any] | None
    mean: float | None = None
    weights: npt.NDArray[np.float32] | None = None

    @classmethod
    def of(cls, rows: Interactions, *, num_users: int) -> Histories:
        """Sort interactions, without sampled negatives, into lists; rows of users and items without a distinct id are left out."""
        ordered, offsets = rows.by_user(num_users)
        items, labels = ordered.item_idx.astype(np.int32), ordered.labels
        return cls(offsets, items, labels, ordered.times, rows.mean, ordered.weights)

    def of_user(self, user_idx: int) -> History:
        """Return the history of a user; empty for ids out of range."""
        if not 0 <= user_idx < len(self.offsets) - 1:
            user_idx = 0
        return self._all.picked(slice(int(self.offsets[user_idx]), int(self.offsets[user_idx + 1])))

    @property
    def _all(self) -> History:
        return History(self.items, self.labels, self.times, self.weights)

    def of_items(self, items: npt.NDArray[np.int64]) -> History:
        """Return a history of positives of weight 1 from the items of a request, oldest first."""
        label = 1.0 if self.mean is None else self.mean + max(1.0, abs(self.mean))
        times = None if self.times is None else np.arange(len(items)).astype(self.times.dtype)
        weights = None if self.weights is None else np.ones(len(items), np.float32)
        return History(items.astype(np.int32), np.full(len(items), label, np.float32), times, weights)

    def interactions(self, users: npt.NDArray[np.int64] | None = None) -> Interactions:
        """Return the rows of users, ordered by user and time; of all by default, and of many, which saves a copy."""
        lengths = np.diff(self.offsets)
        if users is None or 2 * len(users) > len(lengths):
            owners, found = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths), self._all
        else:
            users = users[users < len(lengths)]
            own = lengths[users]
            rows = np.repeat(self.offsets[users] - (np.cumsum(own) - own), own) + np.arange(own.sum())
            owners, found = np.repeat(users.astype(np.int32), own), self._all.picked(rows)
        return self._interactions(owners, found)

    def together(self, histories: Sequence[History]) -> Interactions:
        """Return the rows of some histories as those of users FIRST and above."""
        lengths = [len(history) for history in histories]
        users = np.repeat(np.arange(FIRST, FIRST + len(lengths), dtype=np.int32), lengths)
        return self._interactions(users, self.of_user(-1).followed_by(histories))

    def _interactions(self, users: npt.NDArray[np.int32], rows: History) -> Interactions:
        return Interactions(users, rows.items, rows.labels, None, rows.times, self.mean, None, rows.weights)

    def without_rows(self) -> Histories:
        """Return histories of no user, with the type of times and the mean."""
        empty = self.of_user(-1)
        return Histories(np.zeros(2, np.int64), empty.items, empty.labels, empty.times, self.mean, empty.weights)

    def write(self, folder: Path) -> None:
        """Write one file per array."""
        folder.mkdir(parents=True)
        for name in _FILES:
            if (values := getattr(self, name)) is not None:
                np.save(folder / f"{name}.npy", values)

    @classmethod
    def read(cls, folder: Path, *, mean: float | None, num_users: int, num_items: int) -> Histories:
        """Memory-map the files of `write`; the numbers are upper bounds of the ids.

        Raises:
            ValueError: The arrays do not fit each other, or an item is out of range.
        """
        offsets = read_offsets(folder / "offsets.npy", length=num_users + 1)
        num_rows = int(offsets[-1])
        items = read_array(folder / "items.npy", "int32", length=num_rows, below=num_items, mapped=True)
        labels = read_array(folder / "labels.npy", "float32", length=num_rows, mapped=True)
        times, weights = (
            read_array(path, *types, length=num_rows, mapped=True) if path.is_file() else None
            for path, types in ((folder / "times.npy", ("int64", "float64")), (folder / "weights.npy", ("float32",)))
        )
        return cls(offsets, items, labels, times, mean, weights)


_LATEST = 2.0**62
"""Largest time, within int64 in any unit."""


def extended(
    histories: Histories,
    stored: History,
    recent: Sequence[RecentInteraction],
    items: npt.NDArray[np.int64],
    *,
    ticks: int = 1,
) -> History:
    """Return a stored history with recent interactions in order of time, in which ties and unknown times come after the stored.

    A recent interaction replaces a stored one of the same item. Without stored times, recent ones follow.

    `items` are the encoded recent ones, -1 for unknown; `ticks` are units of the stored times per second.
    """
    known = np.flatnonzero(items >= 0)
    if not len(known):
        return stored
    positives = histories.of_items(items[known])
    known_events = [recent[row] for row in known.tolist()]
    labels = [own if e.label is None else e.label for own, e in zip(positives.labels, known_events, strict=True)]
    if histories.mean is None:
        labels = [float(label > 0) for label in labels]
    times = None if stored.times is None else _times([each.time for each in known_events], stored.times, ticks)
    latest = replace(positives, labels=np.array(labels, np.float32), times=times)
    together = stored.picked(~np.isin(stored.items, items[known])).followed_by([latest])
    return together if together.times is None else together.picked(np.argsort(together.times, kind="stable"))


def _times(seconds: Sequence[float | None], stored: npt.NDArray[Any], ticks: int) -> npt.NDArray[Any]:
    """Return times in the unit and type of the stored ones; unknown times follow all others."""
    given = [None if time is None else stored.dtype.type(min(time * ticks, _LATEST)) for time in seconds]
    last = max([*stored[-1:].tolist(), *(time for time in given if time is not None)], default=0)
    times = [last + 1 + row if time is None else time for row, time in enumerate(given)]
    return np.array(times, stored.dtype)
