"""Reading of whole Parquet files without `pyarrow.dataset`, which `pyarrow.parquet.read_table` imports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the columns of a file, default: all; errors about its content name it."""
    try:
        with pq.ParquetFile(path) as file:
            return file.read(columns=columns)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"{path}: {error}") from error
