"""Streaming order statistics of time for the splits, in memory independent of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.packages import np, npt

Ints: TypeAlias = "npt.NDArray[np.int64]"
_BINS = 1 << 16
_TIE_STREAM = 5


def tie_keys(numbers: Ints, seed: int, stream: int = 0) -> Ints:
    """Return a key by row number, to order rows of one time: distinct, because SplitMix64 is a bijection of 64 bits."""
    return hash_counters(numbers.view(np.uint64), mix(seed, _TIE_STREAM, stream)).view(np.int64)


@dataclass
class TimeBoundary:
    """Boundary of a split: a time, a number of further rows at that time before it, and the impressions of those so far."""

    time: int
    before: int
    begun: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    key: int | None = None  # of the first of those rows after it, if they follow keys

    @classmethod
    def at(cls, times: Callable[[], Iterator[Ints]], rank: int) -> TimeBoundary:
        """Find the boundary after `rank` rows, by counts over ever narrower ranges of time in several passes."""
        sizes = [(int(batch.min()), int(batch.max()), len(batch)) for batch in times() if len(batch)]
        if rank >= sum(size for _, _, size in sizes):
            return cls(2**63 - 1, rank)  # after all rows
        low, high = min(s[0] for s in sizes), max(s[1] for s in sizes)
        below = 0
        while high > low:
            step = -(-(high - low + 1) // _BINS)
            counts = sum(_count(batch, low, high, step) for batch in times())
            ends = below + np.cumsum(counts)
            position = int(np.searchsorted(ends, rank, side="right"))
            below = int(ends[position - 1]) if position else below
            low, high = low + position * step, min(high, low + (position + 1) * step - 1)
        return cls(low, rank - below)

    def reached(self, times: Ints, keys: Ints, impressions: Ints | None = None) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows of the next batch after the boundary: by time, then by `key`, or row or impression."""
        behind = times > self.time
        if self.key is not None:
            return behind | ((times == self.time) & (keys >= self.key))
        ties = np.flatnonzero(times == self.time)
        behind[ties[self.before :]] = True
        if impressions is not None and len(ties):
            begun = impressions[ties[: self.before]]
            self.begun = np.union1d(self.begun, begun[begun >= 0])
            behind[ties[np.isin(impressions[ties], self.begun)]] = False
        self.before = max(0, self.before - len(ties))
        return behind


def _count(times: Ints, low: int, high: int, step: int) -> Ints:
    """Count times in steps from low to high; unsigned, because a difference may exceed int64."""
    inside = times[(times >= low) & (times <= high)]
    steps = (inside.astype(np.uint64) - np.uint64(low % 2**64)) // np.uint64(step)
    return np.bincount(steps.astype(np.int64), minlength=_BINS)


class Ends:
    """Time of each user's last row."""

    def __init__(self) -> None:
        self.times = np.zeros(0, dtype=np.int64)

    def add(self, users: Ints, times: Ints) -> None:
        """Add the next rows."""
        more = int(users.max(initial=-1)) + 1 - len(self.times)
        if more > 0:
            self.times = np.append(self.times, np.full(more, -(2**63), dtype=np.int64))
        np.maximum.at(self.times, users, times)


class LatestTwo:
    """Last two rows of each user by (time, key, row), and the number of rows."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, dtype=np.int64)
        self._held = np.zeros((3, 2, 0), dtype=np.int64)  # times, keys and rows
        self._seen = 0

    @property
    def rows(self) -> Ints:
        """The last row of each user, and the one before; shape (2, users), -1 without one."""
        return self._held[2]

    def add(self, users: Ints, times: Ints, keys: Ints) -> None:
        """Add the next rows; equal keys keep the order of the rows."""
        if not len(users):
            return
        self._grow(int(users.max()) + 1)
        order = np.lexsort((keys, times, users))  # stable: ties keep the order of the rows
        sorted_users = users[order]
        ends = np.flatnonzero(np.append(sorted_users[1:] != sorted_users[:-1], True))
        starts = np.append(0, ends[:-1] + 1)
        owners = sorted_users[ends]
        before = np.maximum(ends - 1, starts)
        for at, valid in ((before, ends > starts), (ends, np.ones(len(owners), dtype=bool))):
            rows = order[at][valid]
            self._insert(owners[valid], np.stack([times[rows], keys[rows], rows + self._seen]))
        self.counts[owners] += ends - starts + 1
        self._seen += len(users)

    def _insert(self, users: Ints, values: Ints) -> None:
        """Insert one later row per user by rank; ties in time and key go to the later row."""
        times, keys, rows = self._held[:, :, users]
        have = np.minimum((rows >= 0).sum(axis=0), 2)
        after = (values[0] > times) | ((values[0] == times) & (values[1] >= keys))
        last = (have == 0) | after[0]
        second = ~last & ((have == 1) | after[1])
        self._held[:, 1, users[last]] = self._held[:, 0, users[last]]
        self._held[:, 0, users[last]] = values[:, last]
        self._held[:, 1, users[second]] = values[:, second]

    def _grow(self, users: int) -> None:
        if (more := users - len(self.counts)) > 0:
            self.counts = np.append(self.counts, np.zeros(more, dtype=np.int64))
            fresh = np.zeros((3, 2, more), dtype=np.int64)
            fresh[2] = -1
            self._held = np.concatenate([self._held, fresh], axis=2)
