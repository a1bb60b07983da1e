"""FillMissing on NVTabular."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.filling import filled
from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import calculated
from recsys_cli.ops import FillMissing


def apply(op: FillMissing, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - stateless, no files
    """Fill nulls and NaN with `fill_val`."""
    constant = int(op.fill_val) if float(op.fill_val).is_integer() else op.fill_val
    return filled(
        rows,
        calculated(rows, op.columns, op.fill_val),
        lambda _: nvtabular().ops.FillMissing(fill_val=constant, add_binary_cols=op.add_binary_cols),
        indicators=op.add_binary_cols,
    )
