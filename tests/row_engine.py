"""The encoder of single rows as an engine, so that the contracts of the ops hold for it too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.polars_engine.engine import PolarsEngine
from recsys_cli.features.columns import TRAIN_ROW
from recsys_cli.features.spec import is_list
from recsys_cli.ops import LambdaOp
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.program import PlanStep
from recsys_cli.serving.encoder.row_encoder import compile_nodes
from recsys_cli.serving.encoder.slicing import Node
from recsys_cli.serving.encoder.values import Columns, Types, Values, element, from_arrow


class RowEngine(PolarsEngine):
    """Applies steps by the row encoder; fits and joins by Polars, as it encodes train rows out of fold."""

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        if TRAIN_ROW in rows.column_names and any(step.op.needs_row_numbers for step in steps):
            return super().apply(steps, fitted, rows)
        types: Types = {field.name: field.type for field in rows.schema}
        columns: Columns = {name: from_arrow(rows.column(name)) for name in rows.column_names}
        nodes = [Node(step.op, step.index, dict.fromkeys(step.writes)) for step in steps]
        with np.errstate(all="ignore"):
            for step in compile_nodes(nodes, fitted, types, {}):
                step(columns, rows.num_rows)
        made = {name: rows.column(name) for name in types if name in rows.column_names}
        for step in steps:
            for name in set(step.writes) & set(types):
                made[name] = to_arrow(columns[name], types[name])
                if pa.types.is_floating(types[name]) and not isinstance(
                    step.op, LambdaOp
                ):  # its floats have NaN for null
                    made[name] = pc.if_else(pc.is_nan(made[name]), pa.scalar(None, types[name]), made[name])
        return pa.table(made)


def to_arrow(values: Values, kind: pa.DataType) -> pa.Array:
    """Return a column as an Arrow array; the inverse of `from_arrow`, with NaN as null."""
    held = element(kind)
    if held == pa.null():
        elements = pa.nulls(len(values.data))
    elif values.data.dtype.kind == "O":
        elements = pa.array(values.data.tolist(), held)
    else:
        elements = _cast(pa.array(values.data, mask=values.nulls), held)
    if not is_list(kind):
        return elements
    assert values.offsets is not None
    return pa.ListArray.from_arrays(pa.array(values.offsets.astype(np.int32)), elements)


def _cast(elements: pa.Array, held: pa.DataType) -> Any:
    if pa.types.is_date32(held) or pa.types.is_time32(held):
        elements = elements.cast(pa.int32())
    return elements.cast(held)
