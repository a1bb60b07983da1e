"""Bucketize on NVTabular: its buckets begin at 0, and ids of values at FIRST."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import groups, numbers, put, through
from recsys_cli.features.ops import Bucketize
from recsys_cli.features.schema import FIRST, NULL


def apply(op: Bucketize, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it learns and writes nothing
    """Replace the columns by ids of intervals."""
    found = {name: numbers(rows.column(name), pa.float64()) for name in op.columns}
    for group in groups(found):
        made = through(
            lambda positions: nvtabular().ops.Bucketize(
                {position: list(op.of(name)) for position, name in positions.items()}
            ),
            {name: found[name].values for name in group},
        )
        for name in group:
            buckets = made[name].cast(pa.int32()) if made else pa.array([], pa.int32())
            ids = pc.if_else(pa.array(found[name].nulls), NULL, pc.add(buckets, FIRST)).cast(pa.int32())
            rows = put(rows, name, found[name].shaped(ids))
    return rows
