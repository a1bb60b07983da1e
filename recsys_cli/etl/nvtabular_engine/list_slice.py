"""ListSlice on NVTabular: it slices element positions, so the elements themselves stay unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, schema, to_arrow, to_frame
from recsys_cli.etl.nvtabular_engine.plain import elements
from recsys_cli.ops import ListSlice

POSITIONS = "positions"


def apply(op: ListSlice, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - stateless, no files
    """Slice, and optionally pad, the lists."""
    cut = {column: _sliced(op, rows.column(column)) for column in op.columns}
    return pa.table({name: cut.get(name, rows.column(name)) for name in rows.column_names})


def _sliced(op: ListSlice, lists: pa.ChunkedArray) -> pa.Array:
    values, offsets = elements(lists)
    assert offsets is not None
    if len(lists) == 0:
        return pa.array([], pa.list_(values.type))
    cut = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.arange(len(values), dtype=np.int64)))
    for first, last in _slices(op, longest=int(np.diff(offsets).max())):
        cut = _run(cut, first, last, padding=len(values) if op.pad else None)
    if op.pad:
        values = pa.concat_arrays([values, pa.array([op.pad_value]).cast(values.type)])
    return pa.ListArray.from_arrays(cut.offsets, values.take(cut.flatten()))


def _slices(op: ListSlice, *, longest: int) -> list[tuple[int, int | None]]:
    """Return the slices to apply in turn.

    NVTabular 23.08 cannot mix a non-negative start and a negative end: it takes their difference for a length. So the
    end is cut first, between two negative positions, then the start.
    """
    first, last = op.bounds
    if last is None or last >= 0 or first < 0:
        return [(op.start, op.end)]
    return [(min(-longest, last - 1), last), (first, max(longest, first + 1))]


def _run(positions: pa.ListArray, first: int, last: int | None, *, padding: int | None) -> pa.ListArray:
    """Slice lists of positions; `padding` fills short lists at the end."""
    library = nvtabular()
    with quiet():
        frame = to_frame({POSITIONS: positions})
        if padding is not None and library.dispatch.is_cpu_object(frame):
            frame[POSITIONS] = frame[POSITIONS].map(list)  # NVTabular 23.08 pads a discarded copy of an array
        slicing = library.ops.ListSlice(first, last, pad=padding is not None, pad_value=padding or 0)
        workflow = library.Workflow([POSITIONS] >> slicing).fit_schema(schema(frame))
        cut = to_arrow(workflow.transform(frame)).column(POSITIONS)
    # The result has no element type if all lists are empty.
    return pa.concat_arrays(cut.cast(pa.list_(pa.int64())).chunks)
