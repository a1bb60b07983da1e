"""What a reader of the prepared data asks first: how many held-out people and items train never saw."""

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
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.features.spec import is_list
from recsys_cli.features.split import SPLITS


def cold_shares(folder: Path, fitted: FittedPlan, staged: Staged) -> dict[str, Any]:
    """Return for each held-out split how many distinct users and items it has, and how many of them train has not.

    Args:
        folder: The prepared rows: their ids say which raw values have to be told apart, and those are few.
        fitted: The fitted plan.
        staged: The raw rows.
    """
    found: dict[str, Any] = {}
    for split in SPLITS[1:]:
        if staged.rows[split]:
            roles = {"users": fitted.plan.user, "items": fitted.plan.item}
            counted = {role: _Column(folder / split, name, fitted, staged).count(split) for role, name in roles.items()}
            found[split] = {role: counts for role, counts in counted.items() if counts is not None}
    return found


@dataclass(frozen=True)
class _Column:
    """Users or items of a split, in prepared and in raw rows, which are in the same order."""

    folder: Path
    name: str
    fitted: FittedPlan
    staged: Staged

    def count(self, split: str) -> dict[str, int] | None:
        """Count them; None where the raw rows do not have them: ops have made them of something else, or cut their lists."""
        if self._raw not in self.staged.schema.names:
            return None
        counts = self.fitted.vocabulary_of(self.name).column("count").to_numpy()
        met = np.concatenate((np.zeros(FIRST, dtype=bool), counts > 0))  # a given vocabulary has others, too
        seen = np.zeros(len(met), dtype=bool)
        strange = []
        for shard in self.staged.shards[split]:
            prepared = self._made(
                pq.read_table(self.folder / f"{shard:05d}.parquet", columns=self._columns(self.name)), self.name
            )
            ids = _elements(prepared).to_numpy()
            is_met = (ids < len(met)) & met[np.minimum(ids, len(met) - 1)]
            seen[ids[is_met]] = True
            others = np.flatnonzero(~is_met & (ids > NULL))
            if len(others):
                raw = self._made(self.staged.read(split, shard, columns=self._columns(self._raw)), self._raw)
                if not _lengths(raw).equals(_lengths(prepared)):
                    return None
                strange.append(pl.Series(_elements(raw).take(pa.array(others))).unique())
        cold = len(pl.concat(strange).unique()) if strange else 0
        return {"distinct": int(np.count_nonzero(seen)) + cold, "cold": cold}

    @property
    def _raw(self) -> str:
        return self.fitted.plan.raw_name(self.name)

    def _columns(self, name: str) -> list[str]:
        draw = self.fitted.program.draw
        return [name, *([draw.output] if draw is not None else [])]

    def _made(self, rows: pa.Table, name: str) -> pa.Array:
        """Return the column without the rows that were drawn."""
        draw = self.fitted.program.draw
        if draw is not None:
            rows = rows.filter(pc.equal(rows.column(draw.output), 0))
        return rows.column(name).combine_chunks()


def _elements(values: pa.Array) -> pa.Array:
    return pc.list_flatten(values) if is_list(values.type) else values


def _lengths(values: pa.Array) -> pa.Array:
    """Return how many elements each row has, where rows hold lists; else how many rows there are."""
    if not is_list(values.type):
        return pa.array([len(values)])
    return pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
