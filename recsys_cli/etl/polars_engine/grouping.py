"""Group keys on Polars: canonical values, and joins of statistics by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from recsys_cli.features.columns import PREFIX
from recsys_cli.ops.grouping import Group, members


def keys_of(group: Group, frame: pl.LazyFrame) -> list[pl.Expr]:
    """Return the key columns `key0`, `key1`, … in canonical form."""
    return [canonical(column, frame).alias(f"key{at}") for at, column in enumerate(members(group))]


def canonical(column: str, frame: pl.LazyFrame) -> pl.Expr:
    """Return the canonical values of a column: null for NaN, 0.0 for -0.0, strings for categoricals."""
    kind = frame.select(column).collect_schema()[column]
    if isinstance(kind, pl.Categorical | pl.Enum):
        return pl.col(column).cast(pl.String)
    return pl.col(column).fill_nan(None) + pl.lit(0.0, dtype=kind) if kind.is_float() else pl.col(column)


def join_by_key(
    frame: pl.LazyFrame, keys: Sequence[pl.Expr], statistics: pa.Table, names: Mapping[str, str]
) -> pl.LazyFrame:
    """Left join of statistics by group key, one row per key; null is a key like any other.

    `names`: column of the statistics → column of the result, possibly an existing one. Number and order of rows stay.
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
