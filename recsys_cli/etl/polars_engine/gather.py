"""Bringing columns of a table by id to the interactions, on Polars."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.features.program import Gather


def apply(op: Gather, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the columns, row by row those of the id in the row, or of its cold key."""
    there = frame.collect_schema().names()
    row = pl.max_horizontal(name for name in op.reads if name in there)
    found = [
        pl.lit(pl.from_arrow(state[name].column(column))).gather(row).alias(column)
        for name, column in zip(op.states, op.columns, strict=True)
    ]
    return frame.with_columns(found)
