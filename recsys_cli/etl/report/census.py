"""Time ranges of the splits, in the unit of the data, from the parquet statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.cpu import Threads
from recsys_cli.etl.report.facts import LabelFacts, RepeatedPairs
from recsys_cli.features.columns import row_column
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import FIRST, Column, Role
from recsys_cli.ops.fitted_plan import FittedPlan

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
    position = next(at for at in range(metadata.num_columns) if metadata.schema.column(at).path == column)
    statistics = [metadata.row_group(at).column(position).statistics for at in range(metadata.num_row_groups)]
    return [(one.min, one.max) for one in statistics if one is not None and one.has_min_max]


ROWS = 1 << 21
"""Target number of compared rows: larger data is sampled, to bound memory and time."""
_STREAM = 4

Ids = npt.NDArray[np.int32]
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Sample:
    """The sample of compared rows: all rows of users (or items, if there are more of them) selected by hash.

    `rows` is the number of rows in all splits.
    """

    user: Column
    item: Column
    rows: int

    @property
    def share(self) -> float:
        """Sampling rate of users (or items)."""
        return min(1.0, ROWS / max(self.rows, 1))

    @property
    def by_user(self) -> bool:
        """Whether users are sampled, not items."""
        return self.user.own_ids.stop >= self.item.own_ids.stop

    def keys(self, user: Ids, item: Ids, times: npt.NDArray[Any] | None = None) -> Keys:
        """Return the keys of the sampled pairs, for users and items with ids of their own; with times a hash of both."""
        others = [] if times is None else [times]
        user, item, *others = _pick(self._selected.take(user if self.by_user else item), user, item, *others)
        is_own = self._is_own(item, self.item) if self.by_user else self._is_own(user, self.user)
        user, item, *others = _pick(is_own, user, item, *others)
        keys = user.astype(np.uint64)
        keys *= np.uint64(self.item.own_ids.stop)
        keys += item.view(np.uint32)
        for one in others:  # a chance collision among 2 million rows has a probability of 1e-7
            keys = hash_counters(_as_counters(one), hash_counters(keys, mix(0, _STREAM)))
        return keys

    @staticmethod
    def _is_own(ids: Ids, column: Column) -> npt.NDArray[np.bool_]:
        mask = ids >= FIRST
        return mask & (ids < column.own_ids.stop) if column.buckets else mask

    @cached_property
    def _selected(self) -> npt.NDArray[np.bool_]:
        """Mask over the ids of the sampled column: the id of a value, and selected by hash."""
        column = self.user if self.by_user else self.item
        ids = np.arange(column.cardinality or FIRST)
        is_own = self._is_own(ids.astype(np.int32), column)
        if self.share == 1:
            return is_own
        return is_own & (hash_counters(ids.astype(np.uint64), mix(0, _STREAM)) < np.uint64(int(self.share * 2**64)))


def _as_counters(times: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    return times.astype(np.float64 if times.dtype.kind == "f" else np.int64).view(np.uint64)


def _pick(mask: npt.NDArray[np.bool_], *columns: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return the rows of a mask by positions, twice as fast as by the mask."""
    positions = np.flatnonzero(mask)
    return [column.take(positions) if len(positions) < len(column) else column for column in columns]


def repetitions(sample: Sample, keys: Mapping[str, Keys]) -> RepeatedPairs:
    """Count the repeated keys within and across splits, by keys in order of the splits; sorts the keys in place."""
    distinct: dict[str, Keys] = {}
    repeated: dict[str, int] = {}
    seen: dict[str, dict[str, int]] = {}
    for split, split_keys in keys.items():
        split_keys.sort()
        first = np.ones(len(split_keys), dtype=bool)
        np.not_equal(split_keys[1:], split_keys[:-1], out=first[1:])
        repeated[split] = len(split_keys) - int(np.count_nonzero(first))
        if distinct:
            seen[split] = {earlier: _count_in(split_keys, other) for earlier, other in distinct.items()}
        distinct[split] = split_keys if not repeated[split] else split_keys[first]
    return RepeatedPairs(
        share=sample.share,
        by=(sample.user if sample.by_user else sample.item).name,
        rows={split: len(split_keys) for split, split_keys in keys.items()},
        repeated=repeated,
        seen=seen,
    )


def _count_in(keys: Keys, other: Keys) -> int:
    """Count the keys in another array; both are sorted."""
    if not len(other):
        return 0
    positions = np.searchsorted(other, keys)
    positions[positions == len(other)] = 0
    return int(np.count_nonzero(other[positions] == keys))


Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CensusSpec:
    """The columns and pairs of a census.

    Attributes:
        ids: The columns with counts by id.
        sample: The (user, item) pairs to compare; None for none.
        sampled: The flag column of sampled negatives, skipped except for the label; None without sampled negatives.
        table_rows: Number of rows of each table with cold keys: its key column is counted by table row instead of id.
    """

    ids: tuple[Column, ...]
    sample: Sample | None
    label: str
    timestamp: str | None
    clock: Clock | None
    sampled: str | None
    table_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        pair = (self.sample.user.name, self.sample.item.name) if self.sample else ()
        time = (self.timestamp,) if self.timestamp and self.clock else ()
        sampled = (self.sampled,) if self.sampled else ()
        return list(dict.fromkeys((*(column.name for column in self.ids), *pair, self.label, *time, *sampled)))


def census_spec(fitted: FittedPlan, shards: Mapping[str, Sequence[Path]], rows: int) -> CensusSpec:
    """Return the columns and pairs to count in `rows` prepared rows."""
    schema, plan = fitted.schema("star"), fitted.plan
    columns = {column.name: column for column in schema.in_table(None)}
    user, item = columns.get(plan.user), columns.get(plan.item)
    ids = dict.fromkeys(name for name in (plan.user, plan.item, *schema.tables) if name in columns)
    pair = user is not None and item is not None and not user.ragged and not item.ragged
    timestamp = plan.timestamp if plan.timestamp in columns else None
    every = max(1, rows // ROWS)
    sampled = [column.name for column in columns.values() if column.role is Role.SAMPLED]
    return CensusSpec(
        ids=tuple(columns[name] for name in ids),
        sample=Sample(user, item, rows) if pair and user and item else None,
        label=plan.labels[0],
        timestamp=timestamp,
        clock=read_clock(timestamp, shards, every=every, ticks=schema.ticks) if timestamp else None,
        sampled=sampled[0] if sampled else None,
        table_rows={
            name: cold.column("row")[-1].as_py() + 1 for name in ids if (cold := fitted.cold_keys(name)) is not None
        },
    )


class Census:
    """Counts of the rows of one split; thread-safe over shards."""

    def __init__(self, spec: CensusSpec, split: str) -> None:
        self._spec = spec
        self._later = spec.clock.after(split) if spec.clock else {}
        self._lock = Lock()
        self._labels = _Labels()
        self._keys: list[Keys] = []
        self._timed_keys: list[Keys] = []
        self.num_sampled = self.dated = self.far = 0
        self.ids = {
            column.name: np.zeros(spec.table_rows.get(column.name) or column.cardinality or FIRST, dtype=np.int64)
            for column in spec.ids
        }
        self.times = np.zeros(spec.clock.bins if spec.clock else 0, dtype=np.int64)
        self.after = dict.fromkeys(self._later, 0)
        self.tied = dict.fromkeys(self._later, 0)

    @property
    def label(self) -> LabelFacts:
        """Statistics of the labels."""
        return self._labels.summary()

    def keys(self) -> Keys:
        """Return the keys of the sampled pairs, and release them."""
        keys, self._keys = self._keys, []
        return _joined(keys)

    def timed_keys(self) -> Keys:
        """Return the keys of the sampled (user, item, time) triples, and release them."""
        keys, self._timed_keys = self._timed_keys, []
        return _joined(keys)

    def count(self, path: Path) -> None:
        """Count the rows of a shard."""
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            rows = {row_column(name): name for name in self._spec.table_rows if row_column(name) in names}
            for group in range(file.num_row_groups):
                self._rows(file.read_row_group(group, columns=[*self._spec.columns, *rows], use_threads=False))

    def _rows(self, rows: pa.Table) -> None:
        spec = self._spec
        self._count_labels(rows.column(spec.label))
        if spec.sampled:
            interactions = rows.filter(pc.equal(rows.column(spec.sampled), 0))
            with self._lock:
                self.num_sampled += rows.num_rows - interactions.num_rows
            rows = interactions
        for column in spec.ids:
            of_table = row_column(column.name)
            name = of_table if of_table in rows.column_names else column.name
            self._count_ids(column.name, _values(rows.column(name)))
        if spec.sample:
            pair = (spec.sample.user.name, spec.sample.item.name)
            self._keys.append(spec.sample.keys(*(_values(rows.column(name)) for name in pair)))
            if spec.timestamp and spec.clock:
                timed = rows.select([*pair, spec.timestamp]).drop_null()
                self._timed_keys.append(spec.sample.keys(*map(_values, timed.columns)))
        if spec.timestamp and spec.clock:
            self._count_times(_values(rows.column(spec.timestamp)), spec.clock)

    def _count_ids(self, name: str, ids: npt.NDArray[np.int32]) -> None:
        total = self.ids[name]
        if len(total) <= 4 * len(ids):
            counts = np.bincount(ids)
            with self._lock:
                total[: len(counts)] += counts
        else:
            values, counts = np.unique(ids, return_counts=True)
            with self._lock:
                total[values] += counts

    def _count_times(self, times: npt.NDArray[Any], clock: Clock) -> None:
        counts = np.bincount(clock.bins_of(times[:: clock.every]), minlength=clock.bins)
        with self._lock:
            self.times += counts
            self.dated += clock.num_dated(times)
            self.far += int(np.count_nonzero(clock.is_far(times)))
            for later, first in self._later.items():
                self.after[later] += int(np.count_nonzero(times > first))
                self.tied[later] += int(np.count_nonzero(times == first))

    def _count_labels(self, column: pa.ChunkedArray) -> None:
        values = _values(column)
        if values.dtype.kind == "f":
            values = values[~np.isnan(values)]
        with self._lock:
            self._labels.add(values, null=len(column) - len(values))


def take_census(spec: CensusSpec, shards: Mapping[str, Sequence[Path]]) -> dict[str, Census]:
    """Count the prepared rows of all splits, given their files."""
    census = {split: Census(spec, split) for split in shards}
    tasks = [partial(census[split].count, path) for split, paths in shards.items() for path in paths]
    for _ in Threads().map(lambda task: task(), tasks):
        pass
    return census


def _joined(keys: list[Keys]) -> Keys:
    return np.concatenate(keys) if keys else np.zeros(0, dtype=np.uint64)


class _Labels:
    def __init__(self) -> None:
        self._null = self._rows = self._zero_or_one = 0
        self._sum = 0.0
        self._low, self._high = np.inf, -np.inf

    def add(self, values: npt.NDArray[Any], *, null: int) -> None:
        self._null += null
        if len(values):
            self._rows += len(values)
            self._zero_or_one += int(np.count_nonzero((values == 0) | (values == 1)))
            self._sum += float(values.sum(dtype=np.float64))
            self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))

    def summary(self) -> LabelFacts:
        if not self._rows:
            return LabelFacts(mean=None, low=None, high=None, null=self._null, binary=False)
        binary = self._zero_or_one == self._rows
        return LabelFacts(mean=self._sum / self._rows, low=self._low, high=self._high, null=self._null, binary=binary)


def _values(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the values (elements of lists) without nulls."""
    if pa.types.is_list(column.type):
        column = pc.list_flatten(column)
    if column.null_count:
        column = column.drop_null()
    return column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
