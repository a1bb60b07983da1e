"""Group keys on Polars: which values are one key, and how what is known of a key comes to its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from recsys_cli.features.columns import PREFIX
from recsys_cli.features.ops.grouping import Group, members


def keys_of(group: Group, frame: pl.LazyFrame) -> list[pl.Expr]:
    """Return the key's parts `key0`, `key1`, …: null for NaN, 0.0 for -0.0, plain text however it is stored."""
    types = frame.select(members(group)).collect_schema()
    return [_canonical(pl.col(column), types[column]).alias(f"key{at}") for at, column in enumerate(members(group))]


def _canonical(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if kind.is_float():
        return values.fill_nan(None) + pl.lit(0.0, dtype=kind)
    return values.cast(pl.String) if kind in {pl.Categorical, pl.Enum} else values


def bring(frame: pl.LazyFrame, keys: Sequence[pl.Expr], known: pa.Table, names: Mapping[str, str]) -> pl.LazyFrame:
    """Add columns of a table by key, null where the table does not have the key; null is a key like any other.

    Args:
        frame: Rows; they keep their number and their order.
        keys: The parts of the rows' keys, named as in the table.
        known: A row for each key.
        names: Which of its columns, and what they are called in the frame, where they take the place of others.
    """
    parts = [key.meta.output_name() for key in keys]
    hidden = {part: PREFIX + part for part in parts}
    table = pl.LazyFrame(known).select([pl.col(part).alias(hidden[part]) for part in parts] + [
        pl.col(column).alias(name) for column, name in names.items()
    ])  # fmt: skip
    rows = frame.with_columns([key.alias(hidden[part]) for key, part in zip(keys, parts, strict=True)])
    rows = rows.drop(list(names.values()), strict=False)
    on = list(hidden.values())
    return rows.join(table, on=on, how="left", nulls_equal=True, maintain_order="left").drop(on)
