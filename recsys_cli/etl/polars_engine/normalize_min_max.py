"""NormalizeMinMax on Polars; NaN passes through."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import VALUE, change, finite_values
from recsys_cli.ops import NormalizeMinMax


def learn(op: NormalizeMinMax, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Compute the range of each column, in one row; lists by element."""
    bounds = (pl.col(VALUE).min().alias("low"), pl.col(VALUE).max().alias("high"))
    return {column: finite_values(frame, column, weight).select(bounds) for column in op.columns}


def apply(op: NormalizeMinMax, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Scale the columns by the range of train."""
    ranges = {name: state[name].to_pylist()[0] for name in op.columns}

    def normalized(values: pl.Expr, name: str) -> pl.Expr:
        low, high = ranges[name]["low"], ranges[name]["high"]
        if low == high:
            return pl.when(values.is_not_nan()).then(0.5)
        return (values - low) / (high - low)

    return frame.with_columns(change(frame, dict.fromkeys(op.columns, pa.float64()), normalized))
