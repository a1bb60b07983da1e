"""One pass over the prepared rows: counts of ids, labels, times and pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.cpu import Threads
from recsys_cli.etl.report.clock import Clock
from recsys_cli.etl.report.facts import LabelFacts
from recsys_cli.etl.report.sample import Keys, Sample
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import FIRST, Column

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
