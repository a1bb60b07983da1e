"""Recent rows of a split and a sample of the others, for a model that continues from earlier weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from recsys_cli.errors import ConfigError
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import Role
from recsys_cli.loader.reading import RowGroup
from recsys_cli.loader.records import Layout, Records, read_records
from recsys_cli.workspace import PreparedData

_STREAM = 23
Mask = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64] | npt.NDArray[np.float64]


@dataclass(frozen=True)
class RecentRows:
    """Rows after a time, in the unit of the data, and `history` sampled earlier rows for each of them."""

    after: float
    history: float
    seed: int

    def is_later(self, times: Times | None) -> Mask:
        """Return a mask of the later rows."""
        if times is None:
            raise ConfigError("train.recent needs times", hint="set features.timestamp, then run recsys etl")
        return times > self.after

    def chosen(self, is_later: Mask) -> Mask:
        """Return a mask of the later rows and of a sample of the others, by a hash of their positions and the seed."""
        earlier = np.flatnonzero(~is_later)
        number = min(len(earlier), round(self.history * max(1, int(is_later.sum()))))
        hashes = hash_counters(earlier.astype(np.uint64), mix(self.seed, _STREAM, int(self.after)))
        chosen = is_later.copy()
        chosen[earlier[np.argsort(hashes, kind="stable")[:number]]] = True
        return chosen


def read_times(data: PreparedData, split: str) -> Times | None:
    """Return the times of a split's rows in file order; None without times."""
    names = [column.name for column in data.schema.select(lambda column: column.role is Role.TIMESTAMP)]
    if not names:
        return None
    parts = [pq.read_table(path, columns=names[:1]) for path in data.shards(split)]
    times = pa.concat_tables(parts).column(0).combine_chunks()
    values: Times = times.fill_null(pa.scalar(0, times.type)).to_numpy()
    return values


def read_chosen(layout: Layout, groups: Sequence[RowGroup], rows: npt.NDArray[np.int64], budget: int) -> Records:
    """Read the rows of some positions, ascending, with one group or more in memory at a time."""
    if layout.num_bytes(groups) <= budget or layout.lists:
        records = read_records(layout, groups)
        return replace(records, words=records.words.index_select(0, torch.from_numpy(rows)))
    words, first = [], 0
    for group in groups:
        own = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + group.num_rows)] - first
        words.append(read_records(layout, [group]).words.index_select(0, torch.from_numpy(own)))
        first += group.num_rows
    return Records(layout, torch.cat(words), {}, {})
