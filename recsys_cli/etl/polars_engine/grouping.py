"""Group keys on Polars: canonical values, and joins of statistics by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from recsys_cli.features.columns import PREFIX
from recsys_cli.features.ops.grouping import Group, members


def keys_of(group: Group, frame: pl.LazyFrame) -> list[pl.Expr]:
    """Return the key columns `key0`, `key1`, …: null for NaN, 0.0 for -0.0, strings for categoricals."""
    types = frame.select(members(group)).collect_schema()
    return [_canonical(pl.col(column), types[column]).alias(f"key{at}") for at, column in enumerate(members(group))]


def _canonical(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if kind.is_float():
        return values.fill_nan(None) + pl.lit(0.0, dtype=kind)
    return values.cast(pl.String) if kind in {pl.Categorical, pl.Enum} else values


def join_by_key(
    frame: pl.LazyFrame, keys: Sequence[pl.Expr], statistics: pa.Table, names: Mapping[str, str]
) -> pl.LazyFrame:
    """Left join of statistics by group key; null is a key like any other.

    Args:
        frame: Rows; their number and order stay.
        keys: Key columns of the rows, named as in the table.
        statistics: One row per key.
        names: Column of the table → column of the result; existing columns are replaced.
    """
    parts = [key.meta.output_name() for key in keys]
    hidden = {part: PREFIX + part for part in parts}
    table = pl.LazyFrame(statistics).select([pl.col(part).alias(hidden[part]) for part in parts] + [
        pl.col(column).alias(name) for column, name in names.items()
    ])  # fmt: skip
    rows = frame.with_columns([key.alias(hidden[part]) for key, part in zip(keys, parts, strict=True)])
    rows = rows.drop(list(names.values()), strict=False)
    on = list(hidden.values())
    return rows.join(table, on=on, how="left", nulls_equal=True, maintain_order="left").drop(on)
