"""Time ranges of the splits, in the unit of the data, from the parquet statistics."""

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
_FIRST_DATE, _LAST_DATE = -2_208_988_800, 7_258_118_400
"""Seconds since 1970 of the years 1900 and 2200: no interaction is outside."""
_FIRST_PLAUSIBLE = 10**8
Time = int | float


@dataclass(frozen=True)
class Clock:
    """The time range of the splits, in bins. Integer bins have a power of 2 as width: the bin is a bit shift.

    Attributes:
        ends: First and last time of each split with times: all int or all float.
        every: Sampling rate of the timeline: one in `every` rows.
        ticks: Time units per second; 1 if unknown.
    """

    ends: Mapping[str, tuple[Time, Time]]
    every: int = 1
    ticks: int = 1

    @property
    def low(self) -> Time:
        """First time of all splits."""
        return min(first for first, _ in self.ends.values())

    @property
    def width(self) -> Time:
        """Width of a bin."""
        span = max(last for _, last in self.ends.values()) - self.low
        if isinstance(span, float):
            return span / _MOST_BINS or 1.0
        return 1 << max(0, (span // _MOST_BINS).bit_length())

    @property
    def bins(self) -> int:
        """Number of bins."""
        return int((max(last for _, last in self.ends.values()) - self.low) // self.width) + 1

    @property
    def edges(self) -> tuple[Time, ...]:
        """Edges of the bins; length `bins` + 1."""
        return tuple(self.low + position * self.width for position in range(self.bins + 1))

    def seconds(self, time: Time) -> Time:
        """Return a time in seconds, or unchanged if the unit is unknown."""
        return time if self.ticks == 1 else time / self.ticks

    def bins_of(self, times: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the bin of each time, from 0. Integer distances are unsigned, because the span may overflow int64."""
        if isinstance(self.width, float):
            return np.clip((times - self.low) // self.width, 0, self.bins - 1).astype(np.int64)
        distances = times.astype(np.int64).view(np.uint64) - np.uint64(self.low % 2**64)
        return (distances >> np.uint64(self.width.bit_length() - 1)).astype(np.int64)

    def is_far(self, times: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of times before 1900 or after 2199, if they are dates."""
        mask: npt.NDArray[np.bool_] = (times < _FIRST_DATE * self.ticks) | (times >= _LAST_DATE * self.ticks)
        return mask

    def num_dated(self, times: npt.NDArray[Any]) -> int:
        """Count times from 1973 to 2199, if they are dates."""
        return int(np.count_nonzero((times >= _FIRST_PLAUSIBLE * self.ticks) & (times < _LAST_DATE * self.ticks)))

    @property
    def borders(self) -> list[tuple[str, str]]:
        """Pairs of an earlier and a later split."""
        return list(combinations(self.ends, 2))

    def after(self, split: str) -> dict[str, Time]:
        """Return the first time of each later split."""
        return {later: self.ends[later][0] for earlier, later in self.borders if earlier == split}


def read_clock(column: str, shards: Mapping[str, Sequence[Path]], *, every: int, ticks: int) -> Clock | None:
    """Read the time range of each split, given the files in the order of splits; None if no row has a time.

    `every` and `ticks`: see `Clock`.
    """
    ends: dict[str, tuple[Time, Time]] = {}
    for split, paths in shards.items():
        ranges = [row_group for path in paths for row_group in _ends(path, column)]
        if ranges:
            ends[split] = (min(low for low, _ in ranges), max(high for _, high in ranges))
    return Clock(ends, every, ticks) if ends else None


def _ends(path: Path, column: str) -> list[tuple[Time, Time]]:
    metadata = pq.read_metadata(path)
    position = next(
        at for at in range(metadata.num_columns) if metadata.schema.column(at).path.partition(".")[0] == column
    )
    statistics = [metadata.row_group(at).column(position).statistics for at in range(metadata.num_row_groups)]
    return [(one.min, one.max) for one in statistics if one is not None and one.has_min_max]
