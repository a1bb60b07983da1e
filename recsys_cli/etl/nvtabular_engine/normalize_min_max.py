"""NormalizeMinMax on NVTabular; of a constant it makes x / 2x, which is nothing for 0, so it is given another number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import VALUE, change, fitted, known
from recsys_cli.features.ops import NormalizeMinMax


def learn(op: NormalizeMinMax, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:  # noqa: ARG001 - it writes nothing
    """Tell each column's range, in one row; lists by element."""
    return {column: _range(known(rows.column(column), pa.float64())) for column in op.columns}


def apply(op: NormalizeMinMax, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it writes nothing
    """Bring the columns to train's range."""
    ranges = {name: state[name].to_pylist()[0] for name in op.columns}
    constant = {name for name, known in ranges.items() if known["low"] == known["high"]}

    def make(positions: Mapping[str, str]) -> Any:
        made = nvtabular().ops.NormalizeMinMax()
        made.mins = {position: 0.0 if name in constant else ranges[name]["low"] for position, name in positions.items()}
        made.maxs = {
            position: 0.0 if name in constant else ranges[name]["high"] for position, name in positions.items()
        }
        return made

    def prepare(values: pa.Array, name: str) -> pa.Array:
        return pa.array(np.ones(len(values))) if name in constant else values

    return change(rows, dict.fromkeys(op.columns, pa.float64()), make, prepare=prepare)


def _range(values: pa.Array) -> pa.Table:
    low = high = None
    if len(values):
        learnt = fitted(nvtabular().ops.NormalizeMinMax(), values)
        low, high = float(learnt.mins[VALUE]), float(learnt.maxs[VALUE])
    return pa.table({"low": pa.array([low], pa.float64()), "high": pa.array([high], pa.float64())})
