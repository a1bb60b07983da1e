"""Clip on NVTabular."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import calculated, change
from recsys_cli.ops import Clip


def apply(op: Clip, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - stateless, no files
    """Clip the columns, one frame per type: pandas would convert a mixed frame to one type."""
    bounds = [
        None if value is None else int(value) if float(value).is_integer() else value
        for value in (op.min_value, op.max_value)
    ]
    types = calculated(rows, op.columns, op.min_value, op.max_value)
    for kind in dict.fromkeys(types.values()):
        same_type = {name: each for name, each in types.items() if each == kind}
        rows = change(rows, same_type, lambda _: nvtabular().ops.Clip(min_value=bounds[0], max_value=bounds[1]))
    return rows
