"""Bringing columns of a table by id to the interactions: a JoinExternal of NVTabular by the number of the row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.join_external import Rows
from recsys_cli.etl.nvtabular_engine.plain import is_list
from recsys_cli.features.columns import POSITION
from recsys_cli.features.program import Gather


def apply(op: Gather, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it writes nothing
    """Add the columns, row by row those of the id in the row, or of its cold key."""
    ids = [rows.column(name).to_numpy() for name in op.reads if name in rows.column_names]
    columns = {column: state[name].column(column) for name, column in zip(op.states, op.columns, strict=True)}
    positions = pa.chunked_array([np.arange(len(next(iter(columns.values()))), dtype=np.int32)])
    carried = {name: column for name, column in columns.items() if _survives(column)}
    brought = Rows(pa.table({**carried, POSITION: positions}))(pa.array(np.maximum.reduce(ids)))
    # Of other columns, raw ones, NVTabular brings which value it is, because pandas would make other values of them.
    found = {
        name: brought.column(name) if name in carried else column.take(brought.column(POSITION))
        for name, column in columns.items()
    }
    return pa.table({name: rows.column(name) for name in rows.column_names if name not in columns} | found)


def _survives(column: pa.ChunkedArray) -> bool:
    """Whether a column comes out of pandas as it went in, but for NaN where a float is null."""
    values = pc.list_flatten(column) if is_list(column.type) else column
    return pa.types.is_floating(values.type) or (pa.types.is_integer(values.type) and values.null_count == 0)
