"""Table rows of cold keys; all engines use the same search, because NVTabular cannot keep a key and its id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl import cold_keys
from recsys_cli.ops.program import Locate


def apply(op: Locate, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - no files
    """Add the column of table rows."""
    return rows.append_column(op.output, pa.array(cold_keys.locate(rows.column(op.key), state[op.key])))
