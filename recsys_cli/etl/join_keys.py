"""The keys of a joined table: null keys removed, duplicates refused. The same for every engine."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.nan import nan_to_null
from recsys_cli.ops import JoinExternal


def keyed(op: JoinExternal, table: pa.Table, key_type: pa.DataType) -> pa.Table:
    """Return the key, in the type of the interactions, and the joined columns, without rows of a null key."""
    try:
        keys = canonical(table.column(op.on).cast(key_type))
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"JoinExternal: {op.on} is {key_type} in the interactions and {table.schema.field(op.on).type} in {op.table}",
            hint="convert the key to the same type in both tables",
        ) from error
    has_key = keys.is_valid()
    keys = keys.filter(has_key)
    counts = pc.value_counts(keys)
    duplicates = counts.field(0).filter(pc.greater(counts.field(1), 1)).sort()
    if len(duplicates):
        shown = ", ".join(map(str, duplicates[:10].to_pylist()))
        raise DataError(
            f"JoinExternal: {len(duplicates)} duplicate keys in {op.table}.{op.on}: {shown}",
            hint="keep one row per key",
        )
    columns = {name: table.column(name).filter(has_key) for name in op.columns}
    return pa.table({op.on: keys, **columns})


def canonical(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return values with NaN replaced by null and -0.0 by 0.0, so that equal keys have equal hashes."""
    kind = values.type
    if not pa.types.is_floating(kind):
        return values
    return pc.add(nan_to_null(values), pa.scalar(0.0, kind))
