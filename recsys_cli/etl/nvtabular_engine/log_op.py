"""LogOp on NVTabular in float64: in its default float32, 1 + x loses a small x."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import change
from recsys_cli.ops import LogOp


def apply(op: LogOp, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - stateless, no files
    """Replace x by log(1 + x)."""
    return change(rows, dict.fromkeys(op.columns, pa.float64()), _double)


def _double(positions: Mapping[str, str]) -> Any:  # noqa: ARG001 - independent of the columns
    class DoubleLogOp(nvtabular().ops.LogOp):  # type: ignore[misc]
        output_dtype = np.float64

    return DoubleLogOp()
