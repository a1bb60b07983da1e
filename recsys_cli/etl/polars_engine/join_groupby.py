"""JoinGroupby on Polars: two-pass moments by group (sums, then squared deviations), joined to the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from recsys_cli.etl.aggregators.join_groupby import corrected
from recsys_cli.etl.polars_engine.grouping import join_by_key, keys_of
from recsys_cli.ops import JoinGroupby
from recsys_cli.ops.grouping import name_of

_WEIGHT = "weight"


def learn(op: JoinGroupby, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Compute `rows` by key, and per column `num0`, `sum0`, `mean0`, `square0`, `min0`, `max0`.

    `square` is the sum of squared deviations from the mean, numerically stable unlike a sum of squares.
    """
    values = [pl.col(name).cast(pl.Float64).fill_nan(None).alias(f"x{at}") for at, name in enumerate(op.cont_cols)]
    queries = {}
    for group in op.columns:
        keys = keys_of(group, frame)
        rows = frame.select([*keys, *values, weight.alias(_WEIGHT)]).filter(pl.col(_WEIGHT) > 0)
        queries[name_of(group)] = _moments(rows, [key.meta.output_name() for key in keys], range(len(values)))
    return queries


def _moments(rows: pl.LazyFrame, keys: Sequence[str], positions: Sequence[int]) -> pl.LazyFrame:
    # Materialized columns first: Polars sums columns many times faster than expressions within a group-by.
    weight = pl.col(_WEIGHT)
    rows = rows.with_columns(
        column
        for at in positions
        for column in (
            pl.when(pl.col(f"x{at}").is_not_null()).then(weight).otherwise(0).alias(f"w{at}"),
            (pl.col(f"x{at}") * weight).alias(f"s{at}"),
        )
    )
    totals = [weight.sum().alias("rows")]
    for at in positions:
        totals += [pl.col(f"w{at}").sum().alias(f"num{at}"), pl.col(f"s{at}").sum().alias(f"sum{at}")]
        totals += [pl.col(f"x{at}").min().alias(f"min{at}"), pl.col(f"x{at}").max().alias(f"max{at}")]
    means = [(pl.col(f"sum{at}") / pl.col(f"num{at}")).alias(f"mean{at}") for at in positions]
    first = rows.group_by(keys, maintain_order=True).agg(totals).with_columns(means)
    if not positions:
        return first
    differences = [pl.col(f"x{at}") - pl.col(f"mean{at}") for at in positions]
    of_group = first.select(*keys, *(f"mean{at}" for at in positions))
    deviations = rows.join(of_group, on=keys, how="left", nulls_equal=True, maintain_order="left").select(
        *keys,
        *((difference * pl.col(f"w{at}")).alias(f"rest{at}") for at, difference in enumerate(differences)),
        *((difference**2 * pl.col(f"w{at}")).alias(f"square{at}") for at, difference in enumerate(differences)),
    )
    return corrected(first, deviations, keys, positions)


def apply(op: JoinGroupby, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the statistics of each row's group."""
    for group in op.columns:
        names = op.written(group)
        frame = join_by_key(frame, keys_of(group, frame), state[name_of(group)], names)
        if "count" in names:
            frame = frame.with_columns(pl.col(names["count"]).fill_null(0))
    return frame
