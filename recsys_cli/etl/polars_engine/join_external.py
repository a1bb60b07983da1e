"""JoinExternal on Polars: the joined columns are looked up once per id, not once per interaction."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.ops import JoinExternal
from recsys_cli.features.schema import FIRST


def keyed(op: JoinExternal, table: pa.Table, key_type: pa.DataType) -> pl.DataFrame:
    """Return the key, in the interactions' type, and the joined columns of a table.

    Raises:
        ConfigError: The key has another kind of type in the table.
        DataError: A key stands twice in the table.
    """
    try:
        keys = table.column(op.on).cast(key_type)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"JoinExternal: {op.on} is {key_type} in the interactions and {table.schema.field(op.on).type} in {op.table}"
        ) from error
    frame = pl.DataFrame(pl.from_arrow(table.select(list(op.columns)))).insert_column(0, pl.Series(op.on, keys))
    if frame.schema[op.on].is_float():
        frame = frame.with_columns(one_zero(pl.col(op.on).fill_nan(None)).alias(op.on))  # NaN is no key
    frame = frame.filter(pl.col(op.on).is_not_null())
    twice = frame.filter(pl.col(op.on).is_duplicated()).get_column(op.on).unique().sort()
    if len(twice):
        shown = ", ".join(map(str, twice.head(10).to_list()))
        raise DataError(f"JoinExternal: {len(twice)} keys stand more than once in {op.table}.{op.on}: {shown}")
    return frame


def by_id(op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the joined columns by encoded key: row i belongs to id i, the first three are without a match."""
    key_type = keys.schema.field("value").type
    ids = pl.DataFrame(pl.from_arrow(keys.select(["value"]))).rename({"value": op.on})
    nothing = pl.DataFrame({op.on: [None] * FIRST}, schema=ids.schema)
    by_key = keyed(op, table, key_type)
    joined = pl.concat([nothing, ids]).join(by_key, on=op.on, how="left", maintain_order="left")
    return joined.select(op.columns).to_arrow()


def one_zero(value: pl.Expr) -> pl.Expr:
    """Make 0.0 of -0.0: they are one value, and which of them stands for it must not depend on the order of the rows."""
    return pl.when(value == 0).then(0.0).otherwise(value)
