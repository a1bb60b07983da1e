"""One pass over the prepared rows of a split, a row group at a time: ids, labels, times and pairs."""

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

from recsys_cli.etl.executor import Threads
from recsys_cli.etl.report.clock import Clock
from recsys_cli.etl.report.facts import LabelFacts
from recsys_cli.etl.report.sample import Keys, Sample
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import FIRST, Column

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CensusQuestion:
    """What to look at.

    Attributes:
        ids: The columns whose ids are counted.
        sample: The pairs to compare; None for none.
        label: The column to predict.
        timestamp: The column of times; None for none.
        clock: When the splits begin and end; None without times.
        drawn: The column that tells rows that were drawn, of which only the label is looked at; None without them.
        table_rows: How many rows the tables have that have cold keys: of these columns the rows are counted, not the ids.
    """

    ids: tuple[Column, ...]
    sample: Sample | None
    label: str
    timestamp: str | None
    clock: Clock | None
    drawn: str | None
    table_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        pair = (self.sample.user.name, self.sample.item.name) if self.sample else ()
        time = (self.timestamp,) if self.timestamp and self.clock else ()
        drawn = (self.drawn,) if self.drawn else ()
        return list(dict.fromkeys((*(column.name for column in self.ids), *pair, self.label, *time, *drawn)))


class Census:
    """What the rows of one split tell; shards may be counted at the same time.

    Args:
        look: What to look at.
        split: Which split it is.
    """

    def __init__(self, look: CensusQuestion, split: str) -> None:
        self._look = look
        self._later = look.clock.after(split) if look.clock else {}
        self._lock = Lock()
        self._labels = _Labels()
        self._keys: list[Keys] = []
        self.drawn = 0
        self.ids = {
            column.name: np.zeros(look.table_rows.get(column.name) or column.cardinality or FIRST, dtype=np.int64)
            for column in look.ids
        }
        self.times = np.zeros(look.clock.bins if look.clock else 0, dtype=np.int64)
        self.after = dict.fromkeys(self._later, 0)
        self.tied = dict.fromkeys(self._later, 0)

    @property
    def label(self) -> LabelFacts:
        """What the labels are."""
        return self._labels.summary()

    def keys(self) -> Keys:
        """Hand over the pairs of the sample; they are not kept."""
        keys, self._keys = self._keys, []
        return np.concatenate(keys) if keys else np.zeros(0, dtype=np.uint64)

    def count(self, path: Path) -> None:
        """Count the rows of a shard."""
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow.names
            rows = {row_column(name): name for name in self._look.table_rows if row_column(name) in there}
            for group in range(file.num_row_groups):
                self._rows(file.read_row_group(group, columns=[*self._look.columns, *rows], use_threads=False))

    def _rows(self, rows: pa.Table) -> None:
        look = self._look
        self._count_labels(rows.column(look.label))
        if look.drawn:
            made = rows.filter(pc.equal(rows.column(look.drawn), 0))
            with self._lock:
                self.drawn += rows.num_rows - made.num_rows
            rows = made
        for column in look.ids:
            of_table = row_column(column.name)
            name = of_table if of_table in rows.column_names else column.name
            self._count_ids(column.name, _values(rows.column(name)))
        if look.sample:
            pair = (look.sample.user.name, look.sample.item.name)
            self._keys.append(look.sample.keys(*(_values(rows.column(name)) for name in pair)))
        if look.timestamp and look.clock:
            self._count_times(_values(rows.column(look.timestamp)), look.clock)

    def _count_ids(self, name: str, ids: npt.NDArray[np.int32]) -> None:
        total = self.ids[name]
        if len(total) <= 4 * len(ids):
            found = np.bincount(ids)
            with self._lock:
                total[: len(found)] += found
        else:
            values, counts = np.unique(ids, return_counts=True)
            with self._lock:
                total[values] += counts

    def _count_times(self, times: npt.NDArray[Any], clock: Clock) -> None:
        found = np.bincount(clock.bins_of(times[:: clock.every]), minlength=clock.bins)
        with self._lock:
            self.times += found
            for later, first in self._later.items():
                self.after[later] += int(np.count_nonzero(times > first))
                self.tied[later] += int(np.count_nonzero(times == first))

    def _count_labels(self, column: pa.ChunkedArray) -> None:
        values = _values(column)
        if values.dtype.kind == "f":
            values = values[~np.isnan(values)]
        with self._lock:
            self._labels.add(values, null=len(column) - len(values))


def take_census(look: CensusQuestion, shards: Mapping[str, Sequence[Path]]) -> dict[str, Census]:
    """Count the prepared rows of all splits.

    Args:
        look: What to look at.
        shards: The files of each split.
    """
    found = {split: Census(look, split) for split in shards}
    tasks = [partial(found[split].count, path) for split, paths in shards.items() for path in paths]
    for _ in Threads().map(lambda task: task(), tasks):
        pass
    return found


class _Labels:
    """Adds labels up."""

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
    """Return a column's values (elements, where rows hold lists) without nulls."""
    if pa.types.is_list(column.type):
        column = pc.list_flatten(column)
    if column.null_count:
        column = column.drop_null()
    return column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
