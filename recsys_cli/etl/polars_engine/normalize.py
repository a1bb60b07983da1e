"""Normalize on Polars: moments in two passes over memory, so that a large mean does not eat the digits of the deviation."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import VALUE, WEIGHT, change, known
from recsys_cli.features.ops import Normalize


def learn(op: Normalize, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Tell each column's count, mean, sum of squared deviations (`squares`) and range, in one row; lists by element."""
    value, times = pl.col(VALUE), pl.col(WEIGHT)
    mean = (value * times).sum() / times.sum()
    told = (
        times.sum().alias("count"), mean.alias("mean"), ((value - mean).pow(2) * times).sum().alias("squares"),
        value.min().alias("low"), value.max().alias("high"),
    )  # fmt: skip
    return {column: known(frame, column, weight).select(told) for column in op.columns}


def apply(op: Normalize, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Bring the columns to mean 0 and deviation 1; NaN passes through."""
    learnt = {name: state[name].to_pylist()[0] for name in op.columns}

    def normalized(values: pl.Expr, name: str) -> pl.Expr:
        deviations = values - learnt[name]["mean"]
        return deviations / learnt[name]["std"] if learnt[name]["std"] > 0 else deviations

    return frame.with_columns(change(frame, dict.fromkeys(op.columns, pa.float64()), normalized))
