"""Lookup join of dimension-table columns to interactions, on Polars."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.ops.program import Gather


def apply(op: Gather, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the table's columns by the id of each row, or by the table row of its cold key."""
    present = frame.collect_schema().names()
    row = pl.max_horizontal(name for name in op.reads if name in present)
    gathered = [
        pl.lit(pl.from_arrow(state[name].column(column))).gather(row).alias(column)
        for name, column in zip(op.states, op.columns, strict=True)
    ]
    return frame.with_columns(gathered)
