"""Cold keys: keys of a joined table, absent from the vocabulary, with rows in the table by id.

Cold keys share an embedding and keep their own features: a table has one row per id, followed by one row per cold key.
They depend neither on held-out rows nor on the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import FIRST
from recsys_cli.ops import Categorify, JoinExternal
from recsys_cli.ops.categorify import counts_of
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.join_external import keyed
from recsys_cli.ops.program import Locate, PlanStep, State


def find_cold(
    op: Categorify, key: str, joins: Sequence[JoinExternal], tables: Mapping[str, pa.Table], state: State, index: int
) -> pa.Table:
    """Return the cold keys of a key column in ascending order; `op` at `index` in the plan encodes it.

    Returns:
        Columns: the key (`value`), its `row` in the table by id, its shared `id`, and `count` 0.
    """
    vocabulary = state[index, op.vocabulary_of(key)]
    values = vocabulary.column("value").combine_chunks()
    columns = [keyed(join, tables[join.table], values.type).column(join.on) for join in joins]
    keys = pa.chunked_array([chunk for column in columns for chunk in column.chunks], values.type)
    cold = keys.filter(pc.invert(pc.is_in(keys, value_set=values))).unique()
    cold = cold.take(pc.sort_indices(cold))
    first = FIRST + len(values) + op.buckets
    return pa.table({
        "value": cold,
        "row": np.arange(first, first + len(cold), dtype=np.int32),
        "id": op.encoding(key, {op.vocabulary_of(key): vocabulary})(cold),
        "count": np.zeros(len(cold), dtype=np.int64),
    })  # fmt: skip


def counted(cold: pa.Table, merged: pa.Table) -> pa.Table:
    """Set the train counts of cold keys: above 0 for values cut from the vocabulary as too rare."""
    counts = counts_of(cold.select(["value"]), merged)
    return cold.set_column(cold.schema.get_field_index("count"), "count", counts)


def shared_ids(cold: pa.Table) -> pa.Array:
    """Return the encoded id of each row of a table: the row number; of cold keys, the shared id."""
    first = cold.column("row")[0].as_py()
    return pa.array(np.concatenate([np.arange(first, dtype=np.int32), cold.column("id").to_numpy()]))


def without_idle(steps: Sequence[PlanStep], fitted: FittedPlan, *, train: bool) -> list[PlanStep]:
    """Leave out lookups of cold keys for columns without any."""
    return [step for step in steps if not isinstance(step.op, Locate) or fitted.has_cold(step.op.key, train=train)]


def with_rows(prepared: pa.Table, computed: pa.Table, steps: Sequence[PlanStep]) -> pa.Table:
    """Append the table row of each key with a Locate step to prepared rows."""
    for step in steps:
        if isinstance(step.op, Locate):
            ids, rows = (computed.column(name).to_numpy() for name in (step.op.key, step.op.output))
            prepared = prepared.append_column(row_column(step.op.key), pa.array(np.maximum(ids, rows)))
    return prepared
