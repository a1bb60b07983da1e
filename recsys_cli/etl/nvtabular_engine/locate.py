"""Finding the table rows of cold keys: the search of every engine, for NVTabular has no op that keeps a key beside its id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl import cold_keys
from recsys_cli.features.program import Locate


def apply(op: Locate, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it writes nothing
    """Add the column of rows."""
    return rows.append_column(op.output, pa.array(cold_keys.locate(rows.column(op.key), state[op.key])))
