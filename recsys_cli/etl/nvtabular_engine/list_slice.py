"""ListSlice on NVTabular: what it cuts are the positions of the elements, so that no element can be changed by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, schema, to_arrow, to_frame
from recsys_cli.etl.nvtabular_engine.plain import elements
from recsys_cli.features.ops import ListSlice

PLACES = "positions"


def apply(op: ListSlice, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it learns and writes nothing
    """Cut the lists."""
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
    """Return what the release has to cut, one after the other.

    From a position counted from the beginning to one counted from the end it cannot: it takes the difference of the two for a
    length. So the end is cut off by two positions counted from the end, and the beginning after it.
    """
    first, last = op.bounds
    if last is None or last >= 0 or first < 0:
        return [(op.start, op.end)]
    return [(min(-longest, last - 1), last), (first, max(longest, first + 1))]


def _run(positions: pa.ListArray, first: int, last: int | None, *, padding: int | None) -> pa.ListArray:
    """Send lists of positions through a workflow of one ListSlice op; `padding` goes to the end of short ones."""
    library = nvtabular()
    with quiet():
        frame = to_frame({PLACES: positions})
        if padding is not None and library.dispatch.is_cpu_object(frame):
            frame[PLACES] = _growing(frame[PLACES])
        slicing = library.ops.ListSlice(first, last, pad=padding is not None, pad_value=padding or 0)
        workflow = library.Workflow([PLACES] >> slicing).fit_schema(schema(frame))
        cut = to_arrow(workflow.transform(frame)).column(PLACES)
    # Where all lists are empty nothing tells what they hold.
    return pa.concat_arrays(cut.cast(pa.list_(pa.int64())).chunks)


def _growing(lists: Any) -> Any:
    """Return the rows as lists of Python: the release appends padding to a copy of an array, and forgets it."""
    return lists.map(list)
