"""Rename without NVTabular: its workflows have neutral column names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.ops import Rename


def apply(op: Rename, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - stateless, no files
    """Rename the columns."""
    return rows.rename_columns([op.columns.get(name, name) for name in rows.column_names])
