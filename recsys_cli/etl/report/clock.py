"""When the splits begin and end, in the unit of the data: from the files' statistics, before a row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

_MOST_BINS = 128
Time = int | float


@dataclass(frozen=True)
class Clock:
    """The time of the rows, cut into intervals; those of whole numbers are a power of two wide, so that finding one is a shift.

    Attributes:
        ends: Times of the earliest and the latest row, by split that has times: all int or all float.
        every: One in so many rows is enough to say when the rows are from.
        ticks: How much of the data's unit makes a second; 1 where that is not known.
    """

    ends: Mapping[str, tuple[Time, Time]]
    every: int = 1
    ticks: int = 1

    @property
    def low(self) -> Time:
        """The earliest time of all."""
        return min(first for first, _ in self.ends.values())

    @property
    def width(self) -> Time:
        """How long an interval is."""
        span = max(last for _, last in self.ends.values()) - self.low
        if isinstance(span, float):
            return span / _MOST_BINS or 1.0
        return 1 << max(0, (span // _MOST_BINS).bit_length())

    @property
    def bins(self) -> int:
        """How many intervals there are."""
        return int((max(last for _, last in self.ends.values()) - self.low) // self.width) + 1

    @property
    def edges(self) -> tuple[Time, ...]:
        """Where the intervals begin, and where the last one ends."""
        return tuple(self.low + position * self.width for position in range(self.bins + 1))

    def seconds(self, time: Time) -> Time:
        """Return a time as the report says it: in seconds where the unit is known."""
        return time if self.ticks == 1 else time / self.ticks

    def bins_of(self, times: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the interval of each time, from 0. Whole numbers may span more than int64 holds: their distances are unsigned."""
        if isinstance(self.width, float):
            return np.clip((times - self.low) // self.width, 0, self.bins - 1).astype(np.int64)
        distances = times.astype(np.int64).view(np.uint64) - np.uint64(self.low % 2**64)
        return (distances >> np.uint64(self.width.bit_length() - 1)).astype(np.int64)

    @property
    def borders(self) -> list[tuple[str, str]]:
        """Pairs of an earlier and a later split."""
        return list(combinations(self.ends, 2))

    def after(self, split: str) -> dict[str, Time]:
        """Return the times of the first rows of the splits that come after a split."""
        return {later: self.ends[later][0] for earlier, later in self.borders if earlier == split}


def read_clock(column: str, shards: Mapping[str, Sequence[Path]], *, every: int, ticks: int) -> Clock | None:
    """Look up when each split begins and ends; None where no row has a time.

    Args:
        column: The column of times.
        shards: The files of each split, in order of the splits.
        every: See `Clock`.
        ticks: See `Clock`.
    """
    ends: dict[str, tuple[Time, Time]] = {}
    for split, paths in shards.items():
        found = [end for path in paths for end in _ends(path, column)]
        if found:
            ends[split] = (min(low for low, _ in found), max(high for _, high in found))
    return Clock(ends, every, ticks) if ends else None


def _ends(path: Path, column: str) -> list[tuple[Time, Time]]:
    metadata = pq.read_metadata(path)
    position = next(
        at for at in range(metadata.num_columns) if metadata.schema.column(at).path.partition(".")[0] == column
    )
    statistics = [metadata.row_group(at).column(position).statistics for at in range(metadata.num_row_groups)]
    return [(found.min, found.max) for found in statistics if found is not None and found.has_min_max]
