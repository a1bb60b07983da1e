"""Clip on NVTabular."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import calculated, change
from recsys_cli.features.ops import Clip


def apply(op: Clip, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it learns and writes nothing
    """Clip the columns, those of a type together: pandas would bring a frame of several to one of them."""
    bounds = [
        None if value is None else int(value) if float(value).is_integer() else value
        for value in (op.min_value, op.max_value)
    ]
    types = calculated(rows, op.columns, op.min_value, op.max_value)
    for kind in dict.fromkeys(types.values()):
        alike = {name: each for name, each in types.items() if each == kind}
        rows = change(rows, alike, lambda _: nvtabular().ops.Clip(min_value=bounds[0], max_value=bounds[1]))
    return rows
