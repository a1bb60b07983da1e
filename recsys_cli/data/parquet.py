"""Parquet files, also of writers with column types unknown to this pyarrow."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TAIL = 8
"""Bytes after the footer of a Parquet file: its length and a magic word."""


def open_parquet(source: Any, *, buffer_size: int = 0) -> pq.ParquetFile:
    """Open a path or a file, without its embedded Arrow schema if that has types unknown to this pyarrow (string views).

    Raises:
        pa.ArrowInvalid: The file is not Parquet, or its footer contradicts itself.
    """
    file = _opened(source, buffer_size)
    _check_footer(file.metadata)
    return file


def _opened(source: Any, buffer_size: int) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source, buffer_size=buffer_size)
    except pa.ArrowInvalid as error:
        if "Unrecognized type" not in str(error):
            raise
    if not isinstance(source, str):
        return pq.ParquetFile(source, metadata=_without_arrow_schema(source), buffer_size=buffer_size)
    with pa.OSFile(source) as file:
        metadata = _without_arrow_schema(file)
    return pq.ParquetFile(source, metadata=metadata, buffer_size=buffer_size)


def _check_footer(metadata: pq.FileMetaData) -> None:
    """Check the type and the number of values of each column chunk: pyarrow crashes on some damaged ones."""
    kinds = [metadata.schema.column(position).physical_type for position in range(metadata.num_columns)]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for position, kind in enumerate(kinds):
            chunk = group.column(position)
            if chunk.physical_type != kind or chunk.num_values < group.num_rows:
                raise pa.ArrowInvalid(
                    f"its footer is damaged: column {metadata.schema.column(position).path} has {chunk.num_values:,} values of "
                    f"{chunk.physical_type} for {group.num_rows:,} rows of {kind}"
                )


def _without_arrow_schema(source: Any) -> pq.FileMetaData:
    source.seek(-_TAIL, os.SEEK_END)
    length = int.from_bytes(source.read(4), "little")
    source.seek(-_TAIL - length, os.SEEK_END)
    footer = source.read(length + _TAIL).replace(b"ARROW:schema", b"arrow-schema", 1)
    return pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
