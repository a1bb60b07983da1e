"""Normalize on NVTabular, with the moments common to all engines: NVTabular's own depend on the row order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.etl.aggregators.normalize import moments
from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import change, finite_values
from recsys_cli.ops import Normalize

_MOMENTS = pa.schema({
    "count": pa.int64(), "mean": pa.float64(), "squares": pa.float64(), "low": pa.float64(), "high": pa.float64(),
})  # fmt: skip


def learn(op: Normalize, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:  # noqa: ARG001 - no files
    """Compute the moments of each column; lists by element."""
    return {column: _moments(finite_values(rows.column(column), pa.float64())) for column in op.columns}


def apply(op: Normalize, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - no files
    """Standardize the columns to mean 0 and standard deviation 1."""

    def make(positions: Mapping[str, str]) -> Any:
        made = nvtabular().ops.Normalize()
        made.means = {position: state[name].column("mean")[0].as_py() for position, name in positions.items()}
        made.stds = {position: state[name].column("std")[0].as_py() for position, name in positions.items()}
        return made

    return change(rows, dict.fromkeys(op.columns, pa.float64()), make)


def _moments(values: pa.Array) -> pa.Table:
    row = moments(values.to_numpy(zero_copy_only=False)) if len(values) else {"count": 0}
    return pa.Table.from_pylist([row], schema=_MOMENTS)
