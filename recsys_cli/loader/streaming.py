"""A split that does not fit in memory: a window of it at a time, while the next window is read in the background."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, pairwise
from threading import Event

import torch

from recsys_cli.batch import Feature
from recsys_cli.errors import ConfigError
from recsys_cli.features.hashing import mix, permutation
from recsys_cli.loader.order import Permutation
from recsys_cli.loader.ragged import join
from recsys_cli.loader.reading import RowGroup
from recsys_cli.loader.records import Layout, Records, read_records

_GROUPS, _ROWS = 0x4752, 0x574E
"""Set the order of the windows' parts and the order inside a window apart from other draws of the same seed."""

Window = tuple[RowGroup, ...]


class Streaming:
    """Hand out the rows of a split from its files, with bounded memory.

    The row groups of all files, in random order, are dealt to windows of at most a third of the budget. One window is
    handed out, shuffled over all its rows, while the next one is read; the last third is for what reading takes.

    Args:
        layout: What a row holds.
        groups: The parts of the files.
        budget: How much memory to use, in bytes.
        seed: Decides the order, together with the epoch; None keeps the order of the files.

    Raises:
        ConfigError: A single row group is larger than a window may be.
    """

    def __init__(self, layout: Layout, groups: Sequence[RowGroup], *, budget: int, seed: int | None) -> None:
        self._layout = layout
        self._groups = groups
        self._budget = budget // 3
        self._seed = seed
        largest = max(groups, key=lambda group: layout.num_bytes([group]))
        needed = layout.num_bytes([largest])
        if needed > self._budget:
            raise ConfigError(
                f"memory={budget >> 20} (MiB) is too little to stream {largest.path}: one of its row groups takes "
                f"{needed / 2**20:.1f} MiB, and a third of the memory is for one window of rows",
                hint=f"recsys train train.memory_mib={-(-3 * needed // 2**20)}",
            )

    def epoch(self, epoch: int) -> StreamingEpoch:
        """Return the rows in an epoch's order."""
        if self._seed is None:
            return StreamingEpoch(self._layout, self._windows(self._groups), key=None)
        order = permutation(len(self._groups), mix(self._seed, _GROUPS, epoch))
        windows = self._windows([self._groups[number] for number in order])
        return StreamingEpoch(self._layout, windows, key=mix(self._seed, _ROWS, epoch))

    def _windows(self, groups: Sequence[RowGroup]) -> list[Window]:
        """Cut into as few windows as fit the budget, of about the same number of row groups, so that none is badly mixed."""
        num_windows = -(-self._layout.num_bytes(groups) // self._budget)
        while True:
            ends = [len(groups) * number // num_windows for number in range(num_windows + 1)]
            windows = [tuple(groups[start:end]) for start, end in pairwise(ends)]
            if all(self._layout.num_bytes(window) <= self._budget for window in windows):
                return windows
            num_windows += 1


class StreamingEpoch:
    """The rows in one order, by position, from one thread and never backwards. No more than two windows are held.

    Args:
        layout: What a row holds.
        windows: What is in memory together, in order.
        key: Decides the order inside the windows; None keeps it.
    """

    threads = 1

    def __init__(self, layout: Layout, windows: Sequence[Window], *, key: int | None) -> None:
        self._layout = layout
        self._windows = windows
        self._key = key
        self._starts = [0, *accumulate(sum(group.num_rows for group in window) for window in windows)]
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="recsys-loader-reader")
        self._closed = Event()
        self._ahead: dict[int, Future[Records]] = {}
        self._current = -1
        self._records: Records | None = None
        self._order: Permutation | None = None

    def rows(self, start: int, stop: int) -> dict[str, Feature]:
        """Return the rows at the positions start, …, stop - 1.

        Raises:
            DataError: A file is not what schema.json says; the message names file, column and value.
        """
        parts = []
        while True:
            window = bisect_right(self._starts, start, hi=len(self._windows)) - 1
            records, first = self._move_to(window), self._starts[window]
            end = min(stop, self._starts[window + 1])
            if self._order is None:
                parts.append(records.span(start - first, end - first))
            else:
                parts.append(records.pick(torch.from_numpy(self._order(start - first, end - first))))
            start = end
            if start >= stop:
                return (
                    parts[0] if len(parts) == 1 else {name: join([part[name] for part in parts]) for name in parts[0]}
                )

    def close(self) -> None:
        """Stop reading ahead and give back the memory."""
        self._closed.set()
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._ahead.clear()
        self._records = None

    def _move_to(self, window: int) -> Records:
        if window != self._current or self._records is None:
            self._records = None
            reading = self._ahead.pop(window, None) or self._read(window)
            self._records = reading.result()
            self._current = window
            if self._key is not None:
                self._order = Permutation(self._records.num_rows, mix(self._key, window))
            if window + 1 < len(self._windows):
                self._ahead[window + 1] = self._read(window + 1)
        return self._records

    def _read(self, window: int) -> Future[Records]:
        return self._reader.submit(read_records, self._layout, self._windows[window], self._closed)
