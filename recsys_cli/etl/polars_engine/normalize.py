"""Normalize on Polars: two-pass moments, so that a large mean does not cost precision of the deviation."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.aggregators.normalize import BASE
from recsys_cli.etl.polars_engine.numeric import VALUE, WEIGHT, change, finite_values
from recsys_cli.ops import Normalize

_DEVIATION, _MEAN = "deviation", "mean"


def learn(op: Normalize, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Compute count, mean, sum of squared deviations (`squares`) and range per column; lists by element."""
    return {column: _moments(finite_values(frame, column, weight)) for column in op.columns}


def _moments(values: pl.LazyFrame) -> pl.LazyFrame:
    """Compute weighted moments, in the steps of `aggregators.normalize.moments`."""
    value = pl.col(VALUE)
    low, high = value.min(), value.max()
    count = pl.col(WEIGHT).cast(pl.Int64).sum()
    mean = low + (high - low) * (_total((value - low) * (1.0 / (high - low))) * (1.0 / count))
    centered = values.with_columns((value - mean).alias(_DEVIATION), mean.alias(_MEAN))
    deviation = pl.col(_DEVIATION)
    widest = deviation.abs().max()
    share = deviation * (1.0 / widest)
    return centered.select(
        count.alias("count"), pl.col(_MEAN).first().alias("mean"), (widest * widest * _total(share * share)).alias("squares"),
        low.alias("low"), high.alias("high"),
    )  # fmt: skip


def _total(shares: pl.Expr) -> pl.Expr:
    scaled = shares.fill_nan(0.0) * BASE
    first = scaled.floor()
    second = ((scaled - first) * BASE).floor()
    times = pl.col(WEIGHT).cast(pl.Int64)
    sums = ((digit.cast(pl.Int64) * times).sum().cast(pl.Float64) for digit in (first, second))
    return (next(sums) + next(sums) / BASE) / BASE


def apply(op: Normalize, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Standardize the columns to mean 0 and standard deviation 1; NaN passes through."""
    fitted = {name: state[name].to_pylist()[0] for name in op.columns}

    def normalized(values: pl.Expr, name: str) -> pl.Expr:
        deviations = values - fitted[name]["mean"]
        return deviations / fitted[name]["std"] if fitted[name]["std"] > 0 else deviations

    return frame.with_columns(change(frame, dict.fromkeys(op.columns, pa.float64()), normalized))
