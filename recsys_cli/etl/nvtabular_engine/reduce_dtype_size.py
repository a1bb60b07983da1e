"""ReduceDtypeSize on NVTabular; values are clipped first, because out-of-range values would wrap around."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import VALUE, calculated, change, finite_values, fitted, numbers
from recsys_cli.etl.nvtabular_engine.plain import set_column
from recsys_cli.ops import ReduceDtypeSize
from recsys_cli.ops.reduce_dtype_size import reduced

_LARGEST = 2**63 - 1


def learn(op: ReduceDtypeSize, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:  # noqa: ARG001 - no files
    """Compute the range of integer columns, null for float columns; lists by element."""
    types = calculated(rows, op.columns)
    return {column: _range(rows.column(column), kind) for column, kind in types.items()}


def apply(op: ReduceDtypeSize, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - no files
    """Cast the columns to the smallest types for the values of train."""
    types = calculated(rows, op.columns)
    integers = {name: reduced(state[name]) for name, kind in types.items() if not pa.types.is_floating(kind)}
    for name, dtype in integers.items():
        column = numbers(rows.column(name), types[name])
        rows = set_column(rows, name, column.shaped(_clipped(column.values, dtype)))

    def make(positions: Mapping[str, str]) -> Any:
        made = nvtabular().ops.ReduceDtypeSize()
        ends = {name: np.iinfo(dtype) for name, dtype in integers.items()}
        made.ranges = {
            p: (ends[name].min, ends[name].max) if name in integers else (None, None) for p, name in positions.items()
        }
        return made

    smaller = {name: pa.type_for_alias(integers.get(name, "float32")) for name in types}
    inside = {name: pa.int64() if name in integers else kind for name, kind in types.items()}
    return change(rows, inside, make, to=smaller)


def _range(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Table:
    low = high = None
    values = pa.array([]) if pa.types.is_floating(kind) else finite_values(column, kind)
    if len(values):
        low, high = (min(int(end), _LARGEST) for end in fitted(nvtabular().ops.ReduceDtypeSize(), values).ranges[VALUE])
    return pa.table({"low": pa.array([low], pa.int64()), "high": pa.array([high], pa.int64())})


def _clipped(values: pa.Array, dtype: str) -> pa.Array:
    if pa.types.is_uint64(values.type):
        values = pc.min_element_wise(values, pa.scalar(_LARGEST, pa.uint64())).cast(pa.int64())
    low, high = (pa.scalar(int(end), pa.int64()) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    return pc.max_element_wise(pc.min_element_wise(values, high), low)
