"""Statistics of JoinGroupby, from merged moments (Chan, Golub and LeVeque, 1979)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import polars as pl
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.etl.aggregators.grouping import in_order, key_names, plain, stacked
from recsys_cli.ops import JoinGroupby

_INT32 = 2**31 - 1
Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Merge the moments by group, in order of first appearance."""
    if len(parts) == 1:
        return parts[0]
    rows = stacked(parts)
    keys = key_names(rows)
    positions = [name.removeprefix("num") for name in rows.columns if name.startswith("num")]
    added = ["rows", *(f"{name}{position}" for position in positions for name in ("num", "sum", "part"))]
    rows = rows.with_columns(
        (pl.col(f"mean{position}") * pl.col(f"num{position}")).alias(f"part{position}") for position in positions
    )
    totals = [pl.col(name).sum() for name in added]
    totals += [
        limit for position in positions for limit in (pl.col(f"min{position}").min(), pl.col(f"max{position}").max())
    ]
    whole = rows.group_by(keys, maintain_order=True).agg(totals)
    if not positions:
        return whole.to_arrow()
    means = [(pl.col(f"part{position}") / pl.col(f"num{position}")).alias(f"mean{position}") for position in positions]
    whole = whole.with_columns(means)
    overall = whole.select(*keys, *(pl.col(f"mean{position}").alias(f"overall{position}") for position in positions))
    joined = rows.join(overall, on=keys, how="left", nulls_equal=True, maintain_order="left")
    deviations = joined.select(*keys, *(column for position in positions for column in _deviations(position)))
    return corrected(whole, deviations, keys, positions).to_arrow()


def _deviations(position: str) -> list[pl.Expr]:
    """Return a part's summed (`rest`) and squared deviations from the overall mean."""
    number, difference = pl.col(f"num{position}"), pl.col(f"mean{position}") - pl.col(f"overall{position}")
    square = pl.col(f"square{position}") + (difference**2 * number).fill_null(0.0)
    return [(difference * number).alias(f"rest{position}"), square.alias(f"square{position}")]


def corrected(totals: Frame, deviations: Frame, keys: Sequence[str], positions: Sequence[str | int]) -> Frame:
    """Return the moments by group, corrected by the rounding error of the mean (`rest`).

    `totals` has `rows` and, per column, `num`, `sum`, `min`, `max` and `mean` by key; `deviations` has summed (`rest`)
    and squared (`square`) deviations from `mean`, in several rows per key.
    """
    sums = deviations.group_by(keys, maintain_order=True).agg(pl.exclude(keys).sum())
    both = totals.join(sums, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return both.select(*keys, "rows", *(column for position in positions for column in _corrected(position)))


def _corrected(position: str | int) -> list[pl.Expr]:
    constant = pl.col(f"min{position}") == pl.col(f"max{position}")
    mean, rest = pl.col(f"mean{position}"), pl.col(f"rest{position}") / pl.col(f"num{position}")
    square = pl.max_horizontal(pl.col(f"square{position}") - rest * pl.col(f"rest{position}"), 0.0)
    return [
        *(pl.col(f"{name}{position}") for name in ("num", "sum", "min", "max")),
        pl.when(constant).then(pl.col(f"min{position}")).when(rest.is_finite()).then(mean + rest).otherwise(mean)
        .fill_nan(None).alias(f"mean{position}"),
        pl.when(constant | (pl.col(f"num{position}") == 0)).then(0.0).otherwise(square).alias(f"square{position}"),
    ]  # fmt: skip


def finalize(op: JoinGroupby, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the configured statistics by group."""
    state = {}
    for name in op.learns:
        table = in_order(stacked([merged[name]]))
        if "count" in op.stats and table.height and int(table.get_column("rows").max()) > _INT32:  # type: ignore[arg-type]
            raise DataError(
                f"JoinGroupby: a group of {name} has more than {_INT32} rows", hint="remove count from its stats"
            )
        statistics = [pl.col("rows").alias("count")] if "count" in op.stats else []
        statistics += [_statistic(stat, at) for at in range(len(op.cont_cols)) for stat in op.described]
        state[name] = plain(table.select(*key_names(table), *statistics))
    return state


def _statistic(name: str, at: int) -> pl.Expr:
    number = pl.col(f"num{at}")
    variance = pl.when(number > 1).then(pl.col(f"square{at}").fill_nan(None) / (number - 1))
    statistic = {"var": variance, "std": variance.sqrt()}.get(name, pl.col(f"{name}{at}").fill_nan(None))
    return statistic.alias(f"{name}{at}")
