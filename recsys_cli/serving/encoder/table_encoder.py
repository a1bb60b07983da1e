"""Encoding of raw rows of a dimension table by a fitted plan, in NumPy: equal to the table by id of the engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.encoder.raw import reader
from recsys_cli.serving.encoder.row_encoder import Lists, compile_nodes, finisher
from recsys_cli.serving.encoder.slicing import Node
from recsys_cli.serving.encoder.values import Array, Columns, Types
from recsys_cli.serving.encoder.vocabulary import VocabularyIndex


class TableEncoder:
    """Encodes the joined columns of keys, such as the genres of movies; compiled once.

    Args:
        fitted: The fitted plan.
        key: Key column of the table.
        indexes: Indexes of vocabularies by name; the others are built here.

    Attributes:
        inputs: Types of the raw columns.

    Raises:
        ConfigError: A column depends on an op without an implementation for single rows.
    """

    def __init__(self, fitted: FittedPlan, key: str, indexes: Mapping[str, VocabularyIndex]) -> None:
        joins = [op for _, op in fitted.program.joins if op.on == key]
        self.inputs: Mapping[str, pa.DataType] = {
            name: fitted.inputs[op.table].field(name).type for op in joins for name in op.columns
        }
        self._readers = {name: reader(name, kind) for name, kind in self.inputs.items()}
        nodes = [Node(step.op, step.index, dict.fromkeys(step.writes)) for step in fitted.program.transforms(key)]
        types: Types = dict(self.inputs)
        self._steps = compile_nodes(nodes, fitted, types, indexes)
        self._outputs = {column.name: finisher(column.dtype) for column in fitted.schema("star").in_table(key)}

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Return the prepared columns of raw rows; a missing column is null.

        Raises:
            DataError: A value does not fit its type.
        """
        columns: Columns = {name: read([row.get(name) for row in rows]) for name, read in self._readers.items()}
        with np.errstate(all="ignore"):
            for step in self._steps:
                step(columns, len(rows))
            return pa.table({name: _arrow(finish(columns[name])) for name, finish in self._outputs.items()})


def _arrow(values: Array | Lists) -> pa.Array:
    if isinstance(values, Lists):
        return pa.ListArray.from_arrays(pa.array(values.offsets.astype(np.int32)), pa.array(values.values))
    return pa.array(values)
