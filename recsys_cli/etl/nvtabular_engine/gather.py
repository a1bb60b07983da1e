"""Lookup join of dimension-table columns to interactions: NVTabular's JoinExternal by row number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.grouping import replaced
from recsys_cli.etl.nvtabular_engine.join_external import TableLookup
from recsys_cli.features.columns import POSITION
from recsys_cli.features.spec import is_list
from recsys_cli.ops.program import Gather


def apply(op: Gather, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - no files
    """Add the table's columns by the id of each row, or by the table row of its cold key."""
    ids = [rows.column(name).to_numpy() for name in op.reads if name in rows.column_names]
    columns = {column: state[name].column(column) for name, column in zip(op.states, op.columns, strict=True)}
    positions = pa.chunked_array([np.arange(len(next(iter(columns.values()))), dtype=np.int32)])
    lossless = {name: column for name, column in columns.items() if _is_lossless(column)}
    joined = TableLookup(pa.table({**lossless, POSITION: positions}))(pa.array(np.maximum.reduce(ids)))
    # For other, raw columns NVTabular joins the row number only, because pandas would change their values.
    gathered = {
        name: joined.column(name) if name in lossless else column.take(joined.column(POSITION))
        for name, column in columns.items()
    }
    return replaced(rows, gathered)


def _is_lossless(column: pa.ChunkedArray) -> bool:
    """Whether a column passes through pandas unchanged, except for NaN instead of null in floats."""
    values = pc.list_flatten(column) if is_list(column.type) else column
    return pa.types.is_floating(values.type) or (pa.types.is_integer(values.type) and values.null_count == 0)
