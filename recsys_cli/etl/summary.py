"""What a reader of the prepared data asks first: how many held-out people and items train never saw."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.staging import Staged
from recsys_cli.features.plan import FittedPlan
from recsys_cli.features.split import SPLITS


def cold_shares(fitted: FittedPlan, staged: Staged) -> dict[str, Any]:
    """Return for each held-out split how many distinct users and items it has, and how many of them train has not."""
    roles = {"users": fitted.plan.user, "items": fitted.plan.item}
    here = {role: column for role, column in roles.items() if fitted.plan.raw_name(column) in staged.schema.names}
    return {
        split: {role: _cold(split, column, fitted, staged) for role, column in here.items()}
        for split in SPLITS[1:]
        if staged.rows[split]
    }


def _cold(split: str, name: str, fitted: FittedPlan, staged: Staged) -> dict[str, int]:
    column = fitted.plan.raw_name(name)
    parts = [pl.DataFrame(_met(split, shard, column, fitted, staged)).unique() for shard in staged.shards[split]]
    distinct = pl.concat(parts)
    if isinstance(distinct.schema[column], pl.List):
        distinct = distinct.explode(column)
    distinct = distinct.unique().drop_nulls()
    vocabulary = fitted.vocabulary_of(name)
    met = vocabulary.filter(pc.greater(vocabulary.column("count"), 0))  # a given vocabulary has others, too
    known = pl.DataFrame({column: pl.from_arrow(met.column("value"))})
    cold = distinct.join(known, on=column, how="anti")
    return {"distinct": len(distinct), "cold": len(cold)}


def _met(split: str, shard: int, column: str, fitted: FittedPlan, staged: Staged) -> pa.Table:
    """Return a column of a shard, without the rows that were drawn."""
    draw = fitted.program.draw
    if draw is None:
        return staged.read(split, shard, columns=[column])
    rows = staged.read(split, shard, columns=[column, draw.output])
    return rows.filter(pc.equal(rows.column(draw.output), 0)).select([column])
