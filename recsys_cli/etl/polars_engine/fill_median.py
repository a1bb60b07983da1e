"""FillMedian on Polars: value counts per shard, because medians of shards do not merge."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import VALUE, WEIGHT, change, fill, finite_values, missing
from recsys_cli.features.ops import FillMedian
from recsys_cli.features.ops.filling import FILLED


def learn(op: FillMedian, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Count each distinct value of each column, as `value` (ascending) and `count`; lists by element."""
    queries = {}
    for column in op.columns:
        values = finite_values(frame, column, weight).group_by(VALUE).agg(pl.col(WEIGHT).sum().alias("count"))
        queries[column] = values.sort(VALUE)
    return queries


def apply(op: FillMedian, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Fill nulls and NaN with the median; `add_binary_cols` adds flags of the filled values."""
    medians = {name: state[name].column("median")[0].as_py() for name in op.columns}
    types = dict.fromkeys(op.columns, pa.float64())
    filled = change(frame, types, lambda values, name: fill(values, types[name], medians[name]))
    if op.add_binary_cols:
        filled += change(frame, types, lambda values, name: missing(values, types[name]).cast(pl.Int8), suffix=FILLED)
    return frame.with_columns(filled)
