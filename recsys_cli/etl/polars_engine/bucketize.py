"""Bucketize on Polars: comparisons for a few boundaries, binary search for many."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import change
from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.ops import Bucketize

_FEW = 32
"""Number of boundaries up to which comparisons are faster than a search (measured)."""


def apply(op: Bucketize, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Replace values by interval ids."""

    def ids(values: pl.Expr, name: str) -> pl.Expr:
        return pl.when(values.is_not_nan()).then(_interval(values, op.of(name)) + FIRST).otherwise(NULL).cast(pl.Int32)

    return frame.with_columns(change(frame, dict.fromkeys(op.columns, pa.float64()), ids))


def _interval(values: pl.Expr, boundaries: tuple[float, ...]) -> pl.Expr:
    """Return the number of boundaries at or below each value."""
    if len(boundaries) > _FEW:
        return pl.lit(pl.Series(boundaries, dtype=pl.Float64)).search_sorted(values, side="right").cast(pl.Int32)
    first, *rest = ((values >= boundary).cast(pl.Int32) for boundary in boundaries)
    return sum(rest, start=first)
