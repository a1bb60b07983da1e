"""The facts of groups of shards, to be merged: tasks of an executor, in two passes over the prepared rows.

The first pass counts values; the second compares rows with the merged counts of the first, such as the last time of a user.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from recsys_cli.features.columns import ROW_NUMBER, row_column
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.features.split import SPLITS, TRAIN

Counts: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = npt.NDArray[np.uint64]
Time = int | float
Shards = tuple[str, Sequence[Path]]
"""A split, and the files of some of its shards."""

_BATCH_ROWS = 1 << 19
_SAMPLE_STREAM = 4
_NO_ROWS = pl.DataFrame(schema=dict.fromkeys(("user", "item", "number"), pl.Int64))
_FIRST_DATE, _FIRST_PLAUSIBLE, _LAST_DATE = -2_208_988_800, 10**8, 7_258_118_400
"""Seconds since 1970 of the years 1900, 1973 and 2200."""
_MERGES: Mapping[str, Any] = {
    "null": sum, "labels": sum, "total": math.fsum, "binary": all, "drawn": sum, "dated": sum, "far": sum,
    **dict.fromkeys(("low", "first"), partial(min, default=None)),
    **dict.fromkeys(("high", "last"), partial(max, default=None)),
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """The columns of prepared interactions for the report.

    Attributes:
        label: The first label.
        ids: Numbers of ids by column with counts: users, items and keys; with cold keys, of rows of the dimension table.
        user: The user column; None if it is absent or has lists.
        pair: The user and the item column; empty if one is absent or has lists.
        time: The time column; None if it is absent or has lists.
        sampled: The column of sampled negatives.
        ticks: Time units per second; 1 if unknown.
        in_file_order: Whether row numbers are those of the raw input, as without `split.tie_seed`.
    """

    columns: Mapping[str, Column]
    label: str
    ids: Mapping[str, int]
    user: str | None
    pair: tuple[str, ...]
    time: str | None
    sampled: str | None
    ticks: int
    in_file_order: bool = True

    def batches(self, file: Path, *names: str) -> Iterator[pl.DataFrame]:
        """Yield columns of a shard, and the mask of sampled negatives, with times as int64 or float64."""
        columns = dict.fromkeys((*names, *([self.sampled] if self.sampled else [])))
        frame = pl.scan_parquet(file, glob=False).select([pl.col(name) for name in columns])
        if self.time in names:
            kind = pl.Float64 if self.columns[self.time].dtype.startswith("float") else pl.Int64
            frame = frame.with_columns(pl.col(self.time).cast(kind))
        for start in count(0, _BATCH_ROWS):
            rows = frame.slice(start, _BATCH_ROWS).collect().rechunk()
            if rows.height:
                yield rows
            if rows.height < _BATCH_ROWS:
                return

    @property
    def is_drawn(self) -> pl.Expr:
        """Mask of sampled negatives."""
        return pl.col(self.sampled) != 0 if self.sampled else pl.lit(value=False)

    def observed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows without sampled negatives."""
        return rows.filter(~self.is_drawn) if self.sampled else rows

    def selected(self, name: str, share: float) -> npt.NDArray[np.bool_]:
        """Return a mask of the sampled ids of a column, by a share of its values."""
        stop = self.columns[name].own_ids.stop if name else 0
        hashes = hash_counters(np.arange(stop, dtype=np.uint64), mix(0, _SAMPLE_STREAM))
        return np.ones(stop, dtype=bool) if share == 1 else hashes < np.uint64(int(share * 2**64))

    def has_own(self, name: str, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Return a mask of the ids of single values."""
        return (ids >= FIRST) & (ids < self.columns[name].own_ids.stop)


def arrays(rows: pl.DataFrame, *names: str) -> list[npt.NDArray[Any]]:
    """Return columns without nulls, or the elements of one with lists."""
    columns = [rows.get_column(name) for name in names]
    if any(column.null_count() for column in columns):
        columns = pl.DataFrame(columns).drop_nulls().get_columns()
    if isinstance(columns[0].dtype, pl.List):
        columns = [columns[0].explode().drop_nulls()]
    return [column.to_numpy() for column in columns]


def merged(statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the statistics of the rows of several parts."""
    return {name: merge([row[name] for row in statistics if row[name] is not None]) for name, merge in _MERGES.items()}


@dataclass(frozen=True)
class RowCounts:
    """The counts of a group of shards, or of a split.

    Attributes:
        statistics: Of labels and times, by name: a mapping per batch of rows.
        ids: The number of interactions by id, by column; with cold keys, by row of the dimension table.
        latest: The last time of each user; empty without users or times.
        pairs: Numbers for the user and item of sampled rows, in parts.
        copies: The same for user, item and time.
        positions: Sum of the numbers of the train rows of each item in the raw input, if there are.
    """

    statistics: list[dict[str, Any]]
    ids: Mapping[str, npt.NDArray[np.integer]]
    latest: npt.NDArray[Any]
    pairs: list[Keys]
    copies: list[Keys]
    positions: Counts

    def __add__(self, other: RowCounts) -> RowCounts:
        ids = {name: np.add(counts, other.ids[name], dtype=np.int64) for name, counts in self.ids.items()}
        statistics, latest = self.statistics + other.statistics, np.maximum(self.latest, other.latest)
        pairs, positions = self.pairs + other.pairs, self.positions + other.positions
        return RowCounts(statistics, ids, latest, pairs, self.copies + other.copies, positions)


@dataclass(frozen=True)
class CountRows:
    """The first pass over a group of shards: a task of an executor.

    Attributes:
        by: The sampled column of pairs and copies; empty without pairs.
        share: The share of its values.
    """

    layout: Layout
    by: str
    share: float

    def __call__(self, shards: Shards) -> RowCounts:
        """Count the rows of shards."""
        layout, none = self.layout, np.zeros(0, dtype=np.uint64)
        ids = {
            name: np.zeros(number, dtype=np.uint32) for name, number in layout.ids.items()
        }  # results go to one process
        has_positions = bool(shards[0] == SPLITS[TRAIN] and layout.pair and layout.time and layout.in_file_order)
        sums = np.zeros(layout.ids[layout.pair[1]] if has_positions else 0, dtype=np.int64)
        counts = RowCounts([], ids, self.no_times(), [none], [none], sums)
        selected = layout.selected(self.by, self.share)
        for sources, rows in self._batches(shards, *([ROW_NUMBER] if has_positions else [])):
            counts.statistics.append(rows.select(**_statistics(layout)).row(0, named=True))
            observed = layout.observed(rows)
            for name, source in sources.items():
                (values,) = arrays(observed, source)
                np.add.at(ids[name], values, np.uint32(1))  # of another type, it takes 35 times as long
            if layout.user and layout.time:
                np.maximum.at(counts.latest, *arrays(observed, layout.user, layout.time))
            if layout.pair:
                pairs, copies = self._keys(observed, selected)
                counts.pairs.append(pairs)
                counts.copies.append(copies)
            if has_positions:
                items, numbers = arrays(observed, layout.pair[1], ROW_NUMBER)
                np.add.at(sums, items, numbers.astype(np.int64))  # of another type, it takes 12 times as long
        return counts

    def _batches(self, shards: Shards, *more: str) -> Iterator[tuple[dict[str, str], pl.DataFrame]]:
        """Yield rows, and their column with the ids of each column with counts."""
        layout = self.layout
        optional = [name for name in (*layout.pair, layout.user, layout.time) if name is not None]
        for file in shards[1]:
            names = pl.read_parquet_schema(file)
            sources = {name: row_column(name) if row_column(name) in names else name for name in layout.ids}
            for rows in layout.batches(file, layout.label, *sources.values(), *optional, *more):
                yield sources, rows

    def no_times(self) -> npt.NDArray[Any]:
        """Return the last time of each user before the first row: the least value of the type."""
        user, time = (self.layout.columns[name] if name else None for name in (self.layout.user, self.layout.time))
        least = -np.inf if time and time.dtype.startswith("float") else np.iinfo(np.int64).min
        return np.full((user.cardinality or FIRST) if user and time else 0, least)

    def _keys(self, rows: pl.DataFrame, selected: npt.NDArray[np.bool_]) -> tuple[Keys, Keys]:
        layout = self.layout
        names = [*layout.pair, *([layout.time] if layout.time else [])]
        columns = arrays(rows, *names)
        own = np.logical_and(*(layout.has_own(name, ids) for name, ids in zip(layout.pair, columns, strict=False)))
        own &= selected[np.minimum(columns[names.index(self.by)], len(selected) - 1)]
        at = np.flatnonzero(own)
        user, item, *times = (column[at] for column in columns)
        pairs = user.astype(np.uint64) * np.uint64(layout.columns[names[1]].own_ids.stop) + item.astype(np.uint64)
        copies = np.zeros(0, dtype=np.uint64)
        for time in times:  # a chance collision among 2 million rows has a probability of 1e-7
            copies = hash_counters(time.view(np.uint64), hash_counters(pairs, mix(0, _SAMPLE_STREAM)))
        return pairs, copies


def _statistics(layout: Layout) -> dict[str, pl.Expr]:
    label = pl.col(layout.label).cast(pl.Float64).fill_nan(None)
    time = pl.col(layout.time) if layout.time is not None else pl.lit(None, pl.Int64)
    first, plausible, last = (end * layout.ticks for end in (_FIRST_DATE, _FIRST_PLAUSIBLE, _LAST_DATE))
    observed = time.filter(~layout.is_drawn)
    return {
        "null": label.null_count(), "labels": label.count(), "total": label.sum(), "low": label.min(), "high": label.max(),
        "binary": label.is_in([0.0, 1.0]).all(),
        "drawn": layout.is_drawn.sum(),
        "dated": observed.is_between(plausible, last, closed="left").sum(),
        "far": ((observed < first) | (observed >= last)).sum(),
        "first": observed.min(), "last": observed.max(),
    }  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """The counts of the second pass over a group of shards.

    Attributes:
        borders: Rows after, and at, the first time of each later split; shape (L, 2).
        bins: Rows by bin of the timeline.
        future: Rows before the last row of the same user in earlier splits.
        with_item: The users with a row of the most frequent item.
        tied: The rows at the last time of their user in a held-out split: user, item and number, by split.
    """

    borders: Counts
    bins: Counts
    future: int
    with_item: npt.NDArray[np.integer]
    tied: Mapping[str, pl.DataFrame]

    def __add__(self, other: Comparison) -> Comparison:
        with_item = np.union1d(self.with_item, other.with_item)
        borders, bins, future = self.borders + other.borders, self.bins + other.bins, self.future + other.future
        tied = {split: pl.concat([rows, other.tied[split]]) for split, rows in self.tied.items()}
        return Comparison(borders, bins, future, with_item, tied)


@dataclass(frozen=True)
class CompareRows:
    """The second pass over a group of shards: a task of an executor.

    Attributes:
        first: The first time of each of the L later splits, by split; empty without times.
        edges: The inner edges of the bins of the timeline.
        every: The sampling rate of the timeline.
        latest: The last time of each user in earlier splits, by split that overlaps with one of these.
        items: The most frequent item, by held-out split.
        last: The last time of each sampled user, by held-out split.
    """

    layout: Layout
    first: Mapping[str, Mapping[str, Time]]
    edges: npt.NDArray[Any]
    every: int
    latest: Mapping[str, npt.NDArray[Any]]
    items: Mapping[str, int]
    last: Mapping[str, npt.NDArray[Any]]

    def __call__(self, shards: Shards) -> Comparison:
        """Compare the rows of shards."""
        layout, (split, files) = self.layout, shards
        user, time, pair = str(layout.user), str(layout.time), layout.pair
        first, latest, most = self.first.get(split), self.latest.get(split), self.items.get(split)
        borders, bins, future = np.zeros((len(first or ()), 2), np.int64), np.zeros(len(self.edges) + 1, np.int64), 0
        with_item = [np.zeros(0, dtype=np.int32)]
        names = [
            *([time] if first is not None else []),
            *([user] if latest is not None else []),
            *(pair if most else []),
            *((*pair, time, ROW_NUMBER) if self.last else []),
        ]
        tied: dict[str, list[pl.DataFrame]] = {held_out: [] for held_out in self.last}
        for file in files if names else ():
            done = 0
            for rows in map(layout.observed, layout.batches(file, *names)):
                if first is not None:
                    (times,) = arrays(rows, time)
                    sample = np.searchsorted(self.edges, times[-done % self.every :: self.every], side="right")
                    bins += np.bincount(sample, minlength=len(bins))
                    for at, one in enumerate(first.values()):
                        borders[at] += np.count_nonzero(times > one), np.count_nonzero(times == one)
                    done += len(times)
                if latest is not None:
                    users, times = arrays(rows, user, time)
                    future += int(np.count_nonzero((times < latest[users]) & layout.has_own(user, users)))
                if most:
                    users, items = arrays(rows, *pair)
                    with_item.append(np.unique(users[(items == most) & layout.has_own(user, users)]))
                if self.last:
                    of_pair = {"user": pl.col(pair[0]), "item": pl.col(pair[1]), "number": pl.col(ROW_NUMBER)}
                    plain = rows.select(**of_pair).cast(pl.Int64)
                    users, times = arrays(rows, user, time)
                    for held_out, last in self.last.items():
                        tied[held_out].append(plain.filter(pl.Series(times == last[users])))
        found = {name: pl.concat(parts or [_NO_ROWS]) for name, parts in tied.items()}
        return Comparison(borders, bins, future, np.unique(np.concatenate(with_item)), found)
