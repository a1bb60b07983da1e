"""Rows of the Parquet files of a Delta or Iceberg table: names, types, missing columns, constants, deleted rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TIME = pa.timestamp("us")
_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "int": pa.int32(), "integer": pa.int32(),
    "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
    "date": pa.date32(), "timestamp": _TIME, "timestamptz": _TIME, "timestamp_ntz": _TIME,
    "timestamp_ns": pa.timestamp("ns"), "timestamptz_ns": pa.timestamp("ns"),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def column_type(name: str) -> pa.DataType | None:
    """Return the type of a column by its name in the table's metadata; times are in UTC without a zone.

    None for structs, maps and other types that no model reads; such columns are left out.
    """
    if (decimal := _DECIMAL.fullmatch(name)) is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if name.startswith("list<") and (inner := column_type(name[len("list<") : -1])) is not None:
        return pa.list_(inner)
    return _TYPES.get(name)


def rows_of(
    file: pq.ParquetFile,
    schema: pa.Schema,
    *,
    stored: Mapping[str, str],
    constants: Mapping[str, Any] = MappingProxyType({}),
    keep: pa.Array | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in the columns of a schema.

    Args:
        file: The opened file.
        schema: Columns of the table; those neither stored nor constant are null, as added after the file.
        stored: Column of the table → column of the file.
        constants: Values of the partition columns.
        keep: Which rows of the file exist; None for all.
    """
    stored = {name: column for name, column in stored.items() if column in file.schema_arrow.names}
    first = 0
    # A file with none of the columns is read as a whole, for its number of rows.
    for batch in file.iter_batches(columns=list(dict.fromkeys(stored.values())) or None):
        columns = [
            batch.column(stored[field.name]).cast(field.type)
            if field.name in stored
            else pa.repeat(pa.scalar(constants.get(field.name), field.type), batch.num_rows)
            for field in schema
        ]
        rows = pa.record_batch(columns, schema=schema)
        yield rows if keep is None else rows.filter(keep.slice(first, batch.num_rows))
        first += batch.num_rows
