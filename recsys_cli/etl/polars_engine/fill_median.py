"""FillMedian on Polars: value counts per shard, because medians of shards do not merge."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import VALUE, WEIGHT, filled, finite_values
from recsys_cli.ops import FillMedian


def learn(op: FillMedian, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Count each distinct value, as `value` (ascending) and `count`; lists by element."""
    queries = {}
    for column in op.columns:
        values = finite_values(frame, column, weight).group_by(VALUE).agg(pl.col(WEIGHT).sum().alias("count"))
        queries[column] = values.sort(VALUE)
    return queries


def apply(op: FillMedian, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Fill nulls and NaN with the median."""
    medians = {name: state[name].column("median")[0].as_py() for name in op.columns}
    return filled(frame, dict.fromkeys(op.columns, pa.float64()), medians, indicators=op.add_binary_cols)
