"""Dataframes of a user as Arrow tables and Parquet files, importing only their library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.reading.plain_types import plain_type, to_plain_type
from recsys_cli.features.spec import is_list


def to_arrow(frame: Any) -> pa.Table:
    """Return a dataframe as an Arrow table.

    Args:
        frame: A polars or pandas DataFrame, an Arrow table or record batch, a mapping of columns, or an object with
            `to_arrow()` or `__arrow_c_stream__`.

    Raises:
        ConfigError: The type is not supported, or a column mixes types.
    """
    try:
        if isinstance(frame, pa.Table):
            return frame
        if type(frame).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        if hasattr(frame, "collect"):
            raise TypeError("it is lazy, and a table is the result of its collect()")
        if hasattr(frame, "get_columns"):
            return pa.table({series.name: _series_to_arrow(series) for series in frame.get_columns()})
        if hasattr(frame, "to_arrow"):
            frame = frame.to_arrow()
        return frame if isinstance(frame, pa.Table) else pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"cannot read a {type(frame).__name__} as a table: {error}",
            hint="give a polars or pandas DataFrame or an Arrow table, with one type per column",
        ) from error


def _series_to_arrow(series: Any) -> pa.Array:
    """Return a Polars column as an Arrow array."""
    if str(series.dtype) == "Object":  # exported as memory addresses
        raise TypeError(f"column {series.name!r} has the Polars type Object")
    try:
        return series.alias("column").to_arrow()  # Polars panics at a name with NUL
    except pa.ArrowException as error:
        raise TypeError(f"column {series.name!r} has the Polars type {series.dtype}: {error}") from error


def write_frame(frame: Any, path: Path) -> None:
    """Write a dataframe to a Parquet file in plain types: no dictionaries, no float16, no run-end encoding.

    Args:
        frame: A dataframe; see `to_arrow`.
        path: The file.

    Raises:
        ConfigError: The frame is not readable, or Parquet has no type for a column.
    """
    table = to_arrow(frame)
    for position, name in enumerate(table.column_names):
        values = table.column(position)
        if is_list(values.type) and values.null_count:  # nulls over elements, from filters in Polars: not in Parquet
            values = values.take(pa.array(np.arange(len(values))))
            table = table.set_column(position, name, values)
        if not _is_storable(values.type):
            table = table.set_column(position, name, _storable(values, position, name))
    pq.write_table(table, path, store_schema=False)


def _storable(values: pa.ChunkedArray, position: int, name: str) -> pa.ChunkedArray:
    """Return a column in a type of Parquet."""
    kind = plain_type(values.type)
    try:
        if _is_storable(kind):
            return to_plain_type(values, kind, name=name, where="the table")
    except DataError:  # Arrow has no cast
        pass
    raise ConfigError(
        f"column {position + 1}, {name!r}, has type {values.type}, and Parquet has no such type",
        hint="cast the column to numbers, text, times or lists of these, or drop it",
    )


def _is_storable(kind: pa.DataType) -> bool:
    """Whether Parquet of any reader has a type; float16 is known to newer ones only."""
    if pa.types.is_float16(kind.value_type if is_list(kind) else kind):
        return False
    try:
        pq.write_table(pa.table({"column": pa.array([], kind)}), pa.BufferOutputStream())
    except pa.ArrowNotImplementedError:
        return False
    return True
