"""Cold keys: those of a joined table that the key's vocabulary lacks. Which there are, and which rows of the table are theirs.

They share an embedding and keep their own features: a table has the rows of all ids first, and behind them one for each cold
key. Nothing of it depends on held-out rows, nor on the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.aggregators.categorify import counts_of
from recsys_cli.etl.hashed import Ids
from recsys_cli.etl.join_keys import keyed
from recsys_cli.etl.polars_engine.encoder import encoder_of
from recsys_cli.features.columns import row_column
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.ops import Categorify, JoinExternal
from recsys_cli.features.program import Locate, PlanStep, State
from recsys_cli.features.schema import FIRST

NOT_COLD = -1
"""The row of a key that is not cold: its row is its id."""


def find_cold(
    op: Categorify, key: str, joins: Sequence[JoinExternal], tables: Mapping[str, pa.Table], state: State, index: int
) -> pa.Table:
    """Return the cold keys of a key column, ascending: `value`, `row` in the table, the `id` that it shares, `count` 0.

    Args:
        op: What makes ids of the key.
        key: The key column.
        joins: All by this key.
        tables: The raw tables, by name.
        state: What the op has learnt.
        index: Its position in the plan.

    Raises:
        ConfigError: The key has another kind of type in a table.
        DataError: A key stands twice in a table.
    """
    vocabulary = state[index, op.vocabulary_of(key)]
    known = vocabulary.column("value").combine_chunks()
    found = [keyed(join, tables[join.table], known.type).column(join.on) for join in joins]
    keys = pa.chunked_array([chunk for column in found for chunk in column.chunks], known.type)
    cold = keys.filter(pc.invert(pc.is_in(keys, value_set=known))).unique()
    cold = cold.take(pc.sort_indices(cold))
    first = FIRST + len(known) + op.buckets
    return pa.table({
        "value": cold,
        "row": np.arange(first, first + len(cold), dtype=np.int32),
        "id": encoder_of(vocabulary)(cold, num_buckets=op.num_buckets),
        "count": np.zeros(len(cold), dtype=np.int64),
    })  # fmt: skip


def counted(cold: pa.Table, merged: pa.Table) -> pa.Table:
    """Return cold keys with how many rows of train each has, which is some where the vocabulary leaves values out.

    Args:
        cold: What `find_cold` returned.
        merged: What was counted of the key column in train.
    """
    counts = counts_of(cold.select(["value"]), merged)
    return cold.set_column(cold.schema.get_field_index("count"), "count", counts)


def locate(values: pa.Array | pa.ChunkedArray, cold: pa.Table) -> Ids:
    """Return the row of each raw key in the table, NOT_COLD where the key is not cold; int32."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    found = encoder_of(cold)(values)
    rows = np.append(cold.column("row").to_numpy(), np.int32(NOT_COLD))
    return rows[np.where(found < FIRST, -1, found - FIRST)]


def shared_ids(cold: pa.Table) -> pa.Array:
    """Return the encoded id of each row of a table: its number, or that which a cold key shares."""
    first = cold.column("row")[0].as_py()
    return pa.array(np.concatenate([np.arange(first, dtype=np.int32), cold.column("id").to_numpy()]))


def without_idle(steps: Sequence[PlanStep], fitted: FittedPlan, *, train: bool) -> list[PlanStep]:
    """Return steps without those that look for cold keys where there are none."""
    return [step for step in steps if not _is_idle(step, fitted, train=train)]


def with_rows(prepared: pa.Table, computed: pa.Table, steps: Sequence[PlanStep]) -> pa.Table:
    """Return prepared rows with the table rows of keys behind the schema's columns.

    Args:
        prepared: The schema's columns.
        computed: What steps have made of the raw rows.
        steps: These steps.
    """
    for step in steps:
        if isinstance(step.op, Locate):
            ids, rows = (computed.column(name).to_numpy() for name in (step.op.key, step.op.output))
            prepared = prepared.append_column(row_column(step.op.key), pa.array(np.maximum(ids, rows)))
    return prepared


def _is_idle(step: PlanStep, fitted: FittedPlan, *, train: bool) -> bool:
    return isinstance(step.op, Locate) and not fitted.has_cold(step.op.key, train=train)
