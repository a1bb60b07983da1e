"""When the splits begin and end: from the files' statistics, before a row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pyarrow.parquet as pq

_MOST_BINS = 128


@dataclass(frozen=True)
class Clock:
    """The time of the rows, cut into intervals whose width is a power of two, so that finding one is a shift.

    Attributes:
        ends: Times of the earliest and the latest row, by split that has times.
        every: One in so many rows is enough to say when the rows are from.
    """

    ends: Mapping[str, tuple[int, int]]
    every: int = 1

    @property
    def low(self) -> int:
        """The earliest time of all."""
        return min(first for first, _ in self.ends.values())

    @property
    def shift(self) -> int:
        """The binary logarithm of the intervals' width."""
        return max(0, ((max(last for _, last in self.ends.values()) - self.low) // _MOST_BINS).bit_length())

    @property
    def bins(self) -> int:
        """How many intervals there are."""
        return ((max(last for _, last in self.ends.values()) - self.low) >> self.shift) + 1

    @property
    def edges(self) -> tuple[int, ...]:
        """Where the intervals begin, and where the last one ends."""
        return tuple(self.low + (place << self.shift) for place in range(self.bins + 1))

    @property
    def borders(self) -> list[tuple[str, str]]:
        """Pairs of an earlier and a later split."""
        return list(combinations(self.ends, 2))

    def after(self, split: str) -> dict[str, int]:
        """Return the times of the first rows of the splits that come after a split."""
        return {later: self.ends[later][0] for earlier, later in self.borders if earlier == split}


def read_clock(column: str, shards: Mapping[str, Sequence[Path]], *, every: int) -> Clock | None:
    """Look up when each split begins and ends; None where no row has a time.

    Args:
        column: The column of times.
        shards: The files of each split, in order of the splits.
        every: See `Clock`.
    """
    ends: dict[str, tuple[int, int]] = {}
    for split, paths in shards.items():
        found = [end for path in paths for end in _ends(path, column)]
        if found:
            ends[split] = (min(low for low, _ in found), max(high for _, high in found))
    return Clock(ends, every) if ends else None


def _ends(path: Path, column: str) -> list[tuple[int, int]]:
    metadata = pq.read_metadata(path)
    place = next(
        at for at in range(metadata.num_columns) if metadata.schema.column(at).path.partition(".")[0] == column
    )
    statistics = [metadata.row_group(at).column(place).statistics for at in range(metadata.num_row_groups)]
    return [(found.min, found.max) for found in statistics if found is not None and found.has_min_max]
