"""Bucketize on NVTabular; its buckets start at 0, our ids at FIRST."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.frames import nvtabular
from recsys_cli.etl.nvtabular_engine.numeric import groups, numbers, run_op
from recsys_cli.etl.nvtabular_engine.plain import set_column
from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.ops import Bucketize


def apply(op: Bucketize, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - stateless, no files
    """Replace values by interval ids."""
    inputs = {name: numbers(rows.column(name), pa.float64()) for name in op.columns}
    for group in groups(inputs):
        made = run_op(
            lambda positions: nvtabular().ops.Bucketize(
                {position: list(op.of(name)) for position, name in positions.items()}
            ),
            {name: inputs[name].values for name in group},
        )
        for name in group:
            buckets = made[name].cast(pa.int32()) if made else pa.array([], pa.int32())
            ids = pc.if_else(pa.array(inputs[name].nulls), NULL, pc.add(buckets, FIRST)).cast(pa.int32())
            rows = set_column(rows, name, inputs[name].shaped(ids))
    return rows
