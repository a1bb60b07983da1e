"""ValueCount on NVTabular."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import fit, nvtabular, quiet
from recsys_cli.etl.nvtabular_engine.plain import elements
from recsys_cli.ops import ValueCount
from recsys_cli.ops.value_count import LONGEST, SHORTEST

LISTS = "lists"


def learn(op: ValueCount, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:  # noqa: ARG001 - no files
    """Compute the shortest and longest list of each column; null without rows."""
    return {column: _lengths(rows.column(column)) for column in op.columns}


def _lengths(lists: pa.ChunkedArray) -> pa.Table:
    """Fit a ValueCount op on lists of zeros, because only the lengths matter.

    Each list has one extra element, because NVTabular 23.08 fails if all lists are empty.
    """
    lengths: dict[str, int | None] = {"min": None, "max": None}
    if len(lists):
        _, offsets = elements(lists)
        assert offsets is not None
        longer = offsets + np.arange(len(offsets), dtype=np.int32)
        zeros = pa.ListArray.from_arrays(pa.array(longer), pa.array(np.zeros(longer[-1], dtype=np.int64)))
        with quiet():
            op = nvtabular().ops.ValueCount()
            fit([LISTS] >> op, {LISTS: zeros})
        lengths = {name: length - 1 for name, length in op.stats[LISTS]["value_count"].items()}
    return pa.table({SHORTEST: pa.array([lengths["min"]], pa.int64()), LONGEST: pa.array([lengths["max"]], pa.int64())})
