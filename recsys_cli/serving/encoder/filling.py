"""Ops that fill nulls, on NumPy: values and indicators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.features.spec import is_list
from recsys_cli.ops.filling import FILLED, FillingOp
from recsys_cli.serving.encoder.ids import null_mask
from recsys_cli.serving.encoder.values import Apply, Columns, Types, Values, caster, numpy_type, retype


def filled(op: FillingOp, constants: Mapping[str, float], kinds: Mapping[str, pa.DataType], types: Types) -> Apply:
    """Fill nulls and NaN with a constant by column; `add_binary_cols` adds flags of the filled values.

    Args:
        op: The op.
        constants: Constants by column.
        kinds: Types of the calculations by column.
        types: Types of the columns.
    """
    fills = {name: _filler(constants[name], kinds[name]) for name in op.columns}
    for name in op.columns:
        if op.add_binary_cols:
            types[name + FILLED] = pa.list_(pa.int8()) if is_list(types[name]) else pa.int8()
        retype(types, name, kinds[name])

    def apply(columns: Columns, rows: int) -> None:  # noqa: ARG001 - as every Apply
        for name, fill in fills.items():
            columns[name], flags = fill(columns[name])
            if op.add_binary_cols:
                columns[name + FILLED] = flags

    return apply


def _filler(constant: float, kind: pa.DataType) -> Callable[[Values], tuple[Values, Values]]:
    cast, fill = caster(kind), numpy_type(kind).type(constant)

    def filler(values: Values) -> tuple[Values, Values]:
        values = cast(values)
        nulls = null_mask(values)
        if nulls is None:
            return values, values.with_data(np.zeros(len(values.data), dtype=np.int8))
        return values.with_data(np.where(nulls, fill, values.data)), values.with_data(nulls.astype(np.int8))

    return filler
