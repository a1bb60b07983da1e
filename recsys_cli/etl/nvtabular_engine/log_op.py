"""LogOp on NVTabular, in double precision: its own is float32, in which 1 + x has no digits left of a small x."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import change
from recsys_cli.features.ops import LogOp


def apply(op: LogOp, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it learns and writes nothing
    """Replace the columns by logarithms."""
    return change(rows, dict.fromkeys(op.columns, pa.float64()), _double)


def _double(positions: Mapping[str, str]) -> Any:  # noqa: ARG001 - it is the same for every column
    class DoubleLogOp(nvtabular().ops.LogOp):  # type: ignore[misc]
        output_dtype = np.float64

    return DoubleLogOp()
