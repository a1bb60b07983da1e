"""Normalize on NVTabular: its deviation is made of a sum of squares, so it is given deviations from the mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import VALUE, change, fitted, known
from recsys_cli.features.ops import Normalize

_TOLD = pa.schema({
    "count": pa.int64(), "mean": pa.float64(), "squares": pa.float64(), "low": pa.float64(), "high": pa.float64(),
})  # fmt: skip


def learn(op: Normalize, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:  # noqa: ARG001 - it writes nothing
    """Tell each column's count, mean, sum of squared deviations (`squares`) and range, in one row; lists by element."""
    return {column: _told(known(rows.column(column), pa.float64())) for column in op.columns}


def apply(op: Normalize, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it writes nothing
    """Bring the columns to mean 0 and deviation 1."""

    def make(places: Mapping[str, str]) -> Any:
        made = nvtabular().ops.Normalize()
        made.means = {place: state[name].column("mean")[0].as_py() for place, name in places.items()}
        made.stds = {place: state[name].column("std")[0].as_py() for place, name in places.items()}
        return made

    return change(rows, dict.fromkeys(op.columns, pa.float64()), make)


def _told(values: pa.Array) -> pa.Table:
    told: dict[str, float | None] = {"count": len(values)}
    if len(values):
        low, high = pc.min_max(values).as_py().values()
        center = pc.mean(values).as_py()
        learnt = fitted(nvtabular().ops.Normalize(), pc.subtract(values, center))
        std = learnt.stds[VALUE]
        told |= {"mean": center + learnt.means[VALUE], "low": low, "high": high}
        # Of one value, or of a constant, there is no deviation, and NVTabular's is NaN or what rounding left.
        told["squares"] = 0.0 if low == high else std * std * (len(values) - 1)
    return pa.Table.from_pylist([told], schema=_TOLD)
