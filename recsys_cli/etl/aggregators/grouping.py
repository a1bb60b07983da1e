"""Tables by group key: concatenation, order and Arrow types."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

KEY = "key"
"""Prefix of the key columns."""


def stacked(parts: Sequence[pa.Table]) -> pl.DataFrame:
    """Concatenate the rows of tables."""
    return pl.concat([pl.DataFrame(pl.from_arrow(part)) for part in parts], how="vertical_relaxed")


def key_names(table: pl.DataFrame) -> list[str]:
    """Return the names of the key columns."""
    return [name for name in table.columns if name.startswith(KEY)]


def in_order(table: pl.DataFrame, *extra: str) -> pl.DataFrame:
    """Sort by key, then by extra columns: null first, strings by UTF-8 bytes."""
    return table.sort(*key_names(table), *extra, nulls_last=False, maintain_order=True)


def plain(table: pl.DataFrame) -> pa.Table:
    """Convert for the fitted state: one chunk, strings as `string`."""
    arrow = table.to_arrow()
    columns = {name: arrow.column(name) for name in arrow.column_names}
    for name, values in columns.items():
        if pa.types.is_large_string(values.type) or str(values.type) == "string_view":
            columns[name] = pc.cast(values, pa.string())
    return pa.table(columns).combine_chunks()
