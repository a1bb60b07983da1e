"""Batches of rows in memory: of a whole split, or of windows that are read in the background."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from threading import Event
from typing import ClassVar, TypeVar

import torch

from recsys_cli.batch import Feature
from recsys_cli.errors import ConfigError
from recsys_cli.features.hashing import mix, permutation
from recsys_cli.loader.order import Permutation
from recsys_cli.loader.reading import RowGroup
from recsys_cli.loader.records import Layout, Records, join_spans, read_records

Step = TypeVar("Step")
Result = TypeVar("Result")


def prefetch(
    build: Callable[[Step], Result], steps: Iterable[Step], *, threads: int, depth: int
) -> Generator[Result, None, None]:
    """Yield build(step) for each step in order, and build the next ones in background threads.

    Closing the iterator, as by leaving a for loop, waits for running builds and ends the threads. `depth` bounds the
    results in progress or waiting, besides the current one.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="recsys-loader")
    waiting: deque[Future[Result]] = deque()
    try:
        for step in steps:
            waiting.append(pool.submit(build, step))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_SHUFFLE = 0x5248
"""Seed offset of the order of rows."""


@dataclass(frozen=True)
class Resident:
    """Split with all rows in memory, in an order given by (seed, epoch); with seed None in the order of the files. Thread-safe."""

    records: Records
    seed: int | None
    order: Permutation | None = None
    threads: ClassVar[int] = 2

    def epoch(self, epoch: int) -> Resident:
        """Return the rows in the order of an epoch."""
        if self.seed is None:
            return self
        return replace(self, order=Permutation(self.records.num_rows, mix(self.seed, _SHUFFLE, epoch)))

    def rows(self, start: int, stop: int) -> dict[str, Feature]:
        """Return the rows at positions start, …, stop - 1."""
        if self.order is None:
            return self.records.span(start, stop)
        rows = torch.from_numpy(self.order(start, stop))
        return self.records.pick(rows.to(self.records.words.device))

    def close(self) -> None:
        """Do nothing; the next epoch needs the rows."""


_GROUPS, _ROWS = 0x4752, 0x574E
"""Seed offsets of the order of row groups and of the order of rows in a window."""

Window = tuple[RowGroup, ...]


class Streaming:
    """Split streamed from its files within a budget in bytes; seed None gives the order of the files.

    The row groups of all files, in random order, form windows of at most a third of the budget. One window is in use,
    shuffled over all its rows, the next one is read, and the last third is for temporary memory of reads. A
    `ConfigError` for a row group larger than a window.
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
                f"memory={budget >> 20} (MiB) is too little to stream {largest.path}: a row group takes "
                f"{needed / 2**20:.1f} MiB, more than a third of the memory",
                hint=f"recsys train train.memory_mib={-(-3 * needed // 2**20)}",
            )

    def epoch(self, epoch: int) -> StreamingEpoch:
        """Return the rows in the order of an epoch."""
        if self._seed is None:
            return StreamingEpoch(self._layout, self._windows(self._groups), key=None)
        order = permutation(len(self._groups), mix(self._seed, _GROUPS, epoch))
        windows = self._windows([self._groups[number] for number in order])
        return StreamingEpoch(self._layout, windows, key=mix(self._seed, _ROWS, epoch))

    def _windows(self, groups: Sequence[RowGroup]) -> list[Window]:
        """Split row groups into as few windows as the budget allows, of about equal size for an even shuffle."""
        num_windows = -(-self._layout.num_bytes(groups) // self._budget)
        while True:
            ends = [len(groups) * number // num_windows for number in range(num_windows + 1)]
            windows = [tuple(groups[start:end]) for start, end in pairwise(ends)]
            if all(self._layout.num_bytes(window) <= self._budget for window in windows):
                return windows
            num_windows += 1


class StreamingEpoch:
    """Rows in the order of one epoch, read forward from a single thread, with at most two windows in memory."""

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
        """Return the rows at positions start, …, stop - 1."""
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
                return join_spans(parts)

    def close(self) -> None:
        """Stop background reads and free the memory."""
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
