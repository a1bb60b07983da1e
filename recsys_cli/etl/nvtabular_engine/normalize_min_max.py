"""NormalizeMinMax on NVTabular; it maps a constant x to x / 2x, undefined for 0, so constants are replaced by 1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import VALUE, change, finite_values, fitted
from recsys_cli.ops import NormalizeMinMax


def learn(op: NormalizeMinMax, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:  # noqa: ARG001 - no files
    """Compute the range of each column, in one row; lists by element."""
    return {column: _range(finite_values(rows.column(column), pa.float64())) for column in op.columns}


def apply(op: NormalizeMinMax, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - no files
    """Scale the columns by the range of train."""
    ranges = {name: state[name].to_pylist()[0] for name in op.columns}
    constant = {name for name, bounds in ranges.items() if bounds["low"] == bounds["high"]}

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
        op = fitted(nvtabular().ops.NormalizeMinMax(), values)
        low, high = float(op.mins[VALUE]), float(op.maxs[VALUE])
    return pa.table({"low": pa.array([low], pa.float64()), "high": pa.array([high], pa.float64())})
