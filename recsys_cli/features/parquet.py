"""Reading of whole Parquet files without `pyarrow.dataset`, which `pyarrow.parquet.read_table` imports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the columns of a file, default: all."""
    with pq.ParquetFile(path) as file:
        return file.read(columns=columns)
