"""ValueCount on Polars."""

from __future__ import annotations

import polars as pl

from recsys_cli.ops import ValueCount
from recsys_cli.ops.value_count import LONGEST, SHORTEST


def learn(op: ValueCount, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Compute the shortest and longest list of each column; null without rows."""
    queries = {}
    for column in op.columns:
        lengths = frame.filter(weight > 0).select(pl.col(column).list.len().fill_null(0).cast(pl.Int64).alias(SHORTEST))
        queries[column] = lengths.select(pl.col(SHORTEST).min(), pl.col(SHORTEST).max().alias(LONGEST))
    return queries
