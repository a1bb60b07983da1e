"""The encoder of single rows as an engine, so that the contracts of the ops hold for it too."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recsys_cli.etl.polars_engine import PolarsEngine
from recsys_cli.ops import LambdaOp
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.program import PlanStep
from recsys_cli.ops.values import Columns, Types, from_arrow, to_arrow
from recsys_cli.serving.encoder import Node, compile_nodes


class RowEngine(PolarsEngine):
    """Applies steps by the row encoder; fits and joins by Polars."""

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
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
                if pa.types.is_floating(types[name]) and isinstance(step.op, LambdaOp):  # its floats have NaN for null
                    made[name] = made[name].fill_null(np.nan)
        return pa.table(made)
