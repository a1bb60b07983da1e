"""The keys of a table that is joined: which rows can be met at all, and that each is met once. The same for every engine."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.ops import JoinExternal


def keyed(op: JoinExternal, table: pa.Table, key_type: pa.DataType) -> pa.Table:
    """Return the key, in the interactions' type, and the joined columns of the rows that have a key.

    Raises:
        ConfigError: The key has another kind of type in the table.
        DataError: A key stands twice in the table.
    """
    try:
        keys = canonical(table.column(op.on).cast(key_type))
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"JoinExternal: {op.on} is {key_type} in the interactions and {table.schema.field(op.on).type} in {op.table}"
        ) from error
    has_key = keys.is_valid()
    keys = keys.filter(has_key)
    counts = pc.value_counts(keys)
    twice = counts.field(0).filter(pc.greater(counts.field(1), 1)).sort()
    if len(twice):
        shown = ", ".join(map(str, twice[:10].to_pylist()))
        raise DataError(f"JoinExternal: {len(twice)} keys stand more than once in {op.table}.{op.on}: {shown}")
    columns = {name: table.column(name).filter(has_key) for name in op.columns}
    return pa.table({op.on: keys, **columns})


def canonical(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return values of which each stands for itself: for NaN null, and for -0.0, another key for a hash, 0.0."""
    kind = values.type
    if not pa.types.is_floating(kind):
        return values
    return pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values), pa.scalar(0.0, kind))
