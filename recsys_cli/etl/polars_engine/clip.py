"""Clip on Polars; NaN passes through."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import calculated, change
from recsys_cli.ops import Clip


def apply(op: Clip, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Clip values to `min_value` and `max_value`."""
    types = calculated(frame, op.columns, op.min_value, op.max_value)

    def clipped(values: pl.Expr, name: str) -> pl.Expr:
        number = float if pa.types.is_floating(types[name]) else int
        low, high = (None if bound is None else number(bound) for bound in (op.min_value, op.max_value))
        return values.clip(low, high)

    return frame.with_columns(change(frame, types, clipped))
