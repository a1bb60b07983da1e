"""ReduceDtypeSize on NVTabular: what its types do not hold would wrap around, so it is clipped before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import VALUE, calculated, change, fitted, known, numbers, put
from recsys_cli.features.ops import ReduceDtypeSize
from recsys_cli.features.ops.reduce_dtype_size import reduced

_LARGEST = 2**63 - 1


def learn(op: ReduceDtypeSize, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:  # noqa: ARG001 - it writes nothing
    """Tell the range of each column of whole numbers, in one row; lists by element. That of other columns is null."""
    types = calculated(rows, op.columns)
    return {column: _range(rows.column(column), kind) for column, kind in types.items()}


def apply(op: ReduceDtypeSize, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it writes nothing
    """Bring the columns to the types that hold train."""
    types = calculated(rows, op.columns)
    whole = {name: reduced(state[name]) for name, kind in types.items() if not pa.types.is_floating(kind)}
    for name, dtype in whole.items():
        found = numbers(rows.column(name), types[name])
        rows = put(rows, name, found.shaped(_clipped(found.values, dtype)))

    def make(positions: Mapping[str, str]) -> Any:
        made = nvtabular().ops.ReduceDtypeSize()
        ends = {name: np.iinfo(dtype) for name, dtype in whole.items()}
        made.ranges = {
            p: (ends[name].min, ends[name].max) if name in whole else (None, None) for p, name in positions.items()
        }
        return made

    smaller = {name: pa.type_for_alias(whole.get(name, "float32")) for name in types}
    inside = {name: pa.int64() if name in whole else kind for name, kind in types.items()}
    return change(rows, inside, make, to=smaller)


def _range(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Table:
    low = high = None
    values = pa.array([]) if pa.types.is_floating(kind) else known(column, kind)
    if len(values):
        low, high = (min(int(end), _LARGEST) for end in fitted(nvtabular().ops.ReduceDtypeSize(), values).ranges[VALUE])
    return pa.table({"low": pa.array([low], pa.int64()), "high": pa.array([high], pa.int64())})


def _clipped(values: pa.Array, dtype: str) -> pa.Array:
    """Return whole numbers as int64, none of them outside a type."""
    if pa.types.is_uint64(values.type):
        values = pc.min_element_wise(values, pa.scalar(_LARGEST, pa.uint64())).cast(pa.int64())
    low, high = (pa.scalar(int(end), pa.int64()) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    return pc.max_element_wise(pc.min_element_wise(values, high), low)
