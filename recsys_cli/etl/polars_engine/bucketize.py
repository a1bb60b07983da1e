"""Bucketize on Polars: a few boundaries are compared with one by one, which takes less time than a search; many are searched."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import change
from recsys_cli.features.ops import Bucketize
from recsys_cli.features.schema import FIRST, NULL

_FEW = 32
"""Boundaries up to which comparing takes less time than searching (measured)."""


def apply(op: Bucketize, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - it learns nothing
    """Replace the columns by ids of intervals."""

    def ids(values: pl.Expr, name: str) -> pl.Expr:
        return pl.when(values.is_not_nan()).then(_passed(values, op.of(name)) + FIRST).otherwise(NULL).cast(pl.Int32)

    return frame.with_columns(change(frame, dict.fromkeys(op.columns, pa.float64()), ids))


def _passed(values: pl.Expr, boundaries: tuple[float, ...]) -> pl.Expr:
    """Return how many boundaries a value has reached."""
    if len(boundaries) > _FEW:
        return pl.lit(pl.Series(boundaries, dtype=pl.Float64)).search_sorted(values, side="right").cast(pl.Int32)
    first, *rest = ((values >= boundary).cast(pl.Int32) for boundary in boundaries)
    return sum(rest, start=first)
