"""Bringing columns of a table by id to the interactions: a JoinExternal of NVTabular by the number of the row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.join_external import Rows
from recsys_cli.features.program import Gather


def apply(op: Gather, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it writes nothing
    """Add the columns, row by row those of the id in the row."""
    columns = {column: state[name].column(column) for name, column in zip(op.states, op.columns, strict=True)}
    brought = Rows(pa.table(columns))(rows.column(op.table).combine_chunks())
    kept = {name: rows.column(name) for name in rows.column_names if name not in columns}
    return pa.table(kept | {name: brought.column(name) for name in brought.column_names})
