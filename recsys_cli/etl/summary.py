"""Numbers of cold-start users and items in the held-out splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.etl.staging import Staged
from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.features.spec import is_list
from recsys_cli.features.split import SPLITS
from recsys_cli.ops.fitted_plan import FittedPlan


def cold_shares(folder: Path, fitted: FittedPlan, staged: Staged) -> dict[str, Any]:
    """Return the numbers of distinct and of cold users and items, by held-out split and role.

    Raw values are only compared for rows without an id of their own.
    """
    shares: dict[str, Any] = {}
    for split in SPLITS[1:]:
        if staged.rows[split]:
            roles = {"users": fitted.plan.user, "items": fitted.plan.item}
            counted = {role: _Column(folder / split, name, fitted, staged).count(split) for role, name in roles.items()}
            shares[split] = {role: counts for role, counts in counted.items() if counts is not None}
    return shares


@dataclass(frozen=True)
class _Column:
    """Users or items of a split, in prepared and raw rows of the same order."""

    folder: Path
    name: str
    fitted: FittedPlan
    staged: Staged

    def count(self, split: str) -> dict[str, int] | None:
        """Count the values; None if ops compute the column or cut its lists."""
        if self._raw not in self.staged.schema.names:
            return None
        counts = self.fitted.vocabulary_of(self.name).column("count").to_numpy()
        in_train = np.concatenate((np.zeros(FIRST, dtype=bool), counts > 0))  # a vocabulary file may have other values
        seen = np.zeros(len(in_train), dtype=bool)
        cold_values = []
        for shard in self.staged.shards[split]:
            prepared = self._observed(
                pq.read_table(self.folder / f"{shard:05d}.parquet", columns=self._columns(self.name)), self.name
            )
            ids = _elements(prepared).to_numpy()
            is_warm = (ids < len(in_train)) & in_train[np.minimum(ids, len(in_train) - 1)]
            seen[ids[is_warm]] = True
            others = np.flatnonzero(~is_warm & (ids > NULL))
            if len(others):
                raw = self._observed(self.staged.read(split, shard, columns=self._columns(self._raw)), self._raw)
                if not _lengths(raw).equals(_lengths(prepared)):
                    return None
                cold_values.append(pl.Series(_elements(raw).take(pa.array(others))).unique())
        cold = len(pl.concat(cold_values).unique()) if cold_values else 0
        return {"distinct": int(np.count_nonzero(seen)) + cold, "cold": cold}

    @property
    def _raw(self) -> str:
        return self.fitted.plan.raw_name(self.name)

    def _columns(self, name: str) -> list[str]:
        draw = self.fitted.program.draw
        return [name, *([draw.output] if draw is not None else [])]

    def _observed(self, rows: pa.Table, name: str) -> pa.Array:
        draw = self.fitted.program.draw
        if draw is not None:
            rows = rows.filter(pc.equal(rows.column(draw.output), 0))
        return rows.column(name).combine_chunks()


def _elements(values: pa.Array) -> pa.Array:
    return pc.list_flatten(values) if is_list(values.type) else values


def _lengths(values: pa.Array) -> pa.Array:
    if not is_list(values.type):
        return pa.array([len(values)])
    return pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
