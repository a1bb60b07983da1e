"""Tables by group key, as every engine gives them: added up, and put in order."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

KEY = "key"
"""How the names of a key's parts begin."""


def stacked(parts: Sequence[pa.Table]) -> pl.DataFrame:
    """Return the rows of several tables, one after the other."""
    return pl.concat([pl.DataFrame(pl.from_arrow(part)) for part in parts], how="vertical_relaxed")


def key_names(table: pl.DataFrame) -> list[str]:
    """Return the names of a key's parts."""
    return [name for name in table.columns if name.startswith(KEY)]


def in_order(table: pl.DataFrame, *beside: str) -> pl.DataFrame:
    """Sort by key, and by what stands beside it: null first, text by its UTF-8 bytes."""
    return table.sort(*key_names(table), *beside, nulls_last=False, maintain_order=True)


def plain(table: pl.DataFrame) -> pa.Table:
    """Return a table of the state: in one piece, with plain text."""
    found = table.to_arrow()
    columns = {name: found.column(name) for name in found.column_names}
    for name, values in columns.items():
        if pa.types.is_large_string(values.type) or str(values.type) == "string_view":
            columns[name] = pc.cast(values, pa.string())
    return pa.table(columns).combine_chunks()
