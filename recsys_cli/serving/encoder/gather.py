"""Lookup join of dimension-table columns to interactions, on NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops.steps import Gather
from recsys_cli.serving.encoder.values import Apply, Array, Columns, Types, Values, from_arrow


def compiled(op: Gather, state: Mapping[str, pa.Table], types: Types) -> Apply:
    """Add the table's columns by the id of each row, or by the table row of its cold key."""
    tables = {}
    for state_name, column in zip(op.states, op.columns, strict=True):
        tables[column] = from_arrow(state[state_name].column(column))
        types[column] = state[state_name].schema.field(column).type
    ids, cold = op.reads
    has_cold = cold in types

    def apply(columns: Columns, rows: int) -> None:  # noqa: ARG001 - as every Apply
        table_rows = columns[ids].data
        if has_cold:
            table_rows = np.maximum(table_rows, columns[cold].data)
        for column, values in tables.items():
            columns[column] = taken(values, table_rows)

    return apply


def taken(values: Values, rows: Array) -> Values:
    """Return some rows of a column."""
    if values.offsets is None:
        return Values(values.data[rows], None if values.nulls is None else values.nulls[rows])
    starts = values.offsets[rows]
    sizes = values.offsets[rows + 1] - starts
    ends = np.cumsum(sizes)
    elements = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
    nulls = None if values.nulls is None else values.nulls[elements]
    return Values(values.data[elements], nulls, np.concatenate(([0], ends)))
