"""Users and items of held-out rows without a row in train, for the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.etl.engine import Executor
from recsys_cli.etl.staging import Staged
from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.features.spec import is_list
from recsys_cli.features.split import SPLITS
from recsys_cli.ops.fitted_plan import FittedPlan


def cold_shares(folder: Path, fitted: FittedPlan, staged: Staged, executor: Executor) -> dict[str, Any]:
    """Return the numbers of distinct and of cold users and items, by held-out split and role.

    Raw values are only compared for rows without an id of their own.
    """
    roles = {"users": fitted.plan.user, "items": fitted.plan.item}
    shares: dict[str, Any] = {}
    for split in (split for split in SPLITS[1:] if staged.rows[split]):
        counted = {role: _count_cold(folder / split, name, fitted, staged, executor) for role, name in roles.items()}
        shares[split] = {role: counts for role, counts in counted.items() if counts is not None}
    return shares


def _count_cold(
    folder: Path, name: str, fitted: FittedPlan, staged: Staged, executor: Executor
) -> dict[str, int] | None:
    """Count the values of a column in a split; None if ops compute the column or cut its lists."""
    raw_name, split = fitted.plan.raw_name(name), folder.name
    sampled = fitted.program.draw.output if fitted.program.draw else None
    if raw_name not in staged.schema.names:
        return None
    counts = fitted.vocabulary_of(name).column("count").to_numpy()
    in_train = np.concatenate((np.zeros(FIRST, dtype=bool), counts > 0))  # a vocabulary file may have other values
    seen = np.zeros(len(in_train), dtype=bool)
    cold_values: list[pl.Series] = []
    for found in executor.map(_Values(folder, name, raw_name, staged, in_train, sampled), staged.shards[split]):
        if found is None:
            return None
        seen[found[0]] = True
        cold_values.append(pl.Series(found[1]))
    cold = pl.concat(values for values in cold_values if len(values)).n_unique() if any(map(len, cold_values)) else 0
    return {"distinct": int(np.count_nonzero(seen)) + cold, "cold": cold}


@dataclass(frozen=True)
class _Values:
    """Distinct values of a column in a shard: a task of an executor.

    Attributes:
        in_train: Whether train has each id.
        sampled: The column that marks sampled negatives.
    """

    folder: Path
    name: str
    raw_name: str
    staged: Staged
    in_train: npt.NDArray[np.bool_]
    sampled: str | None

    def __call__(self, shard: int) -> tuple[npt.NDArray[np.integer], pa.Array] | None:
        """Return the ids of train, and the other raw values; None for cut lists."""
        columns = [self.sampled] if self.sampled else []
        table = pq.read_table(self.folder / f"{shard:05d}.parquet", columns=[self.name, *columns])
        prepared = _observed(table, self.name, self.sampled)
        ids = _elements(prepared).to_numpy()
        is_warm = (ids < len(self.in_train)) & self.in_train[np.minimum(ids, len(self.in_train) - 1)]
        others = np.flatnonzero(~is_warm & (ids > NULL))
        if not len(others):
            return np.unique(ids[is_warm]), pa.nulls(0)
        read = self.staged.read(self.folder.name, shard, columns=[self.raw_name, *columns])
        raw = _observed(read, self.raw_name, self.sampled)
        if not _lengths(raw).equals(_lengths(prepared)):
            return None
        return np.unique(ids[is_warm]), _elements(raw).take(pa.array(others)).unique()


def _observed(rows: pa.Table, name: str, sampled: str | None) -> pa.Array:
    """Return a column without sampled negatives."""
    rows = rows.filter(pc.equal(rows.column(sampled), 0)) if sampled else rows
    return rows.column(name).combine_chunks()


def _elements(values: pa.Array) -> pa.Array:
    return pc.list_flatten(values) if is_list(values.type) else values


def _lengths(values: pa.Array) -> pa.Array:
    if not is_list(values.type):
        return pa.array([len(values)])
    return pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
