"""FillMissing on Polars."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import calculated, change, fill, missing
from recsys_cli.features.ops import FillMissing
from recsys_cli.features.ops.filling import FILLED


def apply(op: FillMissing, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Fill nulls and NaN with `fill_val`; `add_binary_cols` adds flags of the filled values."""
    types = calculated(frame, op.columns, op.fill_val)
    filled = change(frame, types, lambda values, name: fill(values, types[name], op.fill_val))
    if op.add_binary_cols:
        filled += change(frame, types, lambda values, name: missing(values, types[name]).cast(pl.Int8), suffix=FILLED)
    return frame.with_columns(filled)
