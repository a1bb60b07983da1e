"""FillMedian on NVTabular, with exact medians: NVTabular's own are estimates from two partitions on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.filling import filled
from recsys_cli.etl.nvtabular_engine.frames import nvtabular, to_arrow, to_frame
from recsys_cli.etl.nvtabular_engine.numeric import VALUE, finite_values
from recsys_cli.ops import FillMedian


def learn(op: FillMedian, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:  # noqa: ARG001 - no files
    """Count each distinct value, as `value` (ascending) and `count`; lists by element."""
    return {column: _counts(finite_values(rows.column(column), pa.float64())) for column in op.columns}


def apply(op: FillMedian, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - no files
    """Fill nulls and NaN with the median."""

    def make(positions: Mapping[str, str]) -> Any:
        made = nvtabular().ops.FillMedian(add_binary_cols=op.add_binary_cols)
        made.medians = {position: state[name].column("median")[0].as_py() for position, name in positions.items()}
        return made

    return filled(rows, dict.fromkeys(op.columns, pa.float64()), make, indicators=op.add_binary_cols)


def _counts(values: pa.Array) -> pa.Table:
    counts = to_frame({VALUE: values})[VALUE].value_counts().sort_index()
    frame = counts.rename("count").rename_axis(VALUE).reset_index()
    return to_arrow(frame).cast(pa.schema({VALUE: pa.float64(), "count": pa.int64()}))
