"""JoinGroupby on Polars: moments by group, taken in two passes, and statistics brought to rows by a join."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.grouping import bring, keys_of
from recsys_cli.features.ops import JoinGroupby
from recsys_cli.features.ops.grouping import name_of

_WEIGHT = "weight"


def learn(op: JoinGroupby, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Describe the columns by key: `rows`, and of each column `num0`, `sum0`, `mean0`, `square0`, `min0`, `max0`.

    `square` is the sum of squared differences to the mean, which, other than a sum of squares, keeps its digits.
    """
    values = [pl.col(name).cast(pl.Float64).fill_nan(None).alias(f"x{at}") for at, name in enumerate(op.cont_cols)]
    moments = [moment for at in range(len(values)) for moment in _moments(f"x{at}", at)]
    queries = {}
    for group in op.columns:
        keys = keys_of(group, frame)
        rows = frame.select([*keys, *values, weight.alias(_WEIGHT)]).filter(pl.col(_WEIGHT) > 0)
        grouped = rows.group_by([key.meta.output_name() for key in keys], maintain_order=True)
        queries[name_of(group)] = grouped.agg([pl.col(_WEIGHT).sum().alias("rows"), *moments])
    return queries


def _moments(name: str, at: int) -> list[pl.Expr]:
    value, weight = pl.col(name), pl.col(_WEIGHT)
    number = weight.filter(value.is_not_null()).sum()
    # Taken from the least value on, the mean of a constant is that constant to the last digit, and its variance 0.
    start = pl.when(value.min().is_finite()).then(value.min()).otherwise(0.0)
    mean = start + ((value - start) * weight).sum() / number
    return [
        number.alias(f"num{at}"),
        (value * weight).sum().alias(f"sum{at}"),
        mean.fill_nan(None).alias(f"mean{at}"),
        ((value - mean) ** 2 * weight).sum().alias(f"square{at}"),
        value.min().alias(f"min{at}"),
        value.max().alias(f"max{at}"),
    ]


def apply(op: JoinGroupby, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add what is known of each row's group."""
    for group in op.columns:
        names = op.written(group)
        frame = bring(frame, keys_of(group, frame), state[name_of(group)], names)
        if "count" in names:
            frame = frame.with_columns(pl.col(names["count"]).fill_null(0))
    return frame
