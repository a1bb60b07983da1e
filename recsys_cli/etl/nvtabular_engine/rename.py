"""Rename beside NVTabular: its workflows see numbers for names, so that there is nothing that its own Rename could do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.features.ops import Rename


def apply(op: Rename, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it learns and writes nothing
    """Give the columns their new names: no value is computed."""
    return rows.rename_columns([op.columns.get(name, name) for name in rows.column_names])
