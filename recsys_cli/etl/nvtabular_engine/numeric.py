"""Numbers as NVTabular can calculate with them: flat, of one type, without nulls; and workflows of one op over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, run, schema, to_frame
from recsys_cli.etl.nvtabular_engine.plain import element_type, elements
from recsys_cli.features.ops.numeric import calculated_type

VALUE = "value"
"""Name of the column in every frame that is learnt from."""


@dataclass(frozen=True)
class Numbers:
    """A column's numbers.

    Attributes:
        values: N numbers, a list's one after the other; 0 where there is none.
        nulls: N flags of where there is none, NaN included.
        offsets: Where the lists begin and end, or None for single values.
    """

    values: pa.Array
    nulls: npt.NDArray[np.bool_]
    offsets: npt.NDArray[np.int32] | None

    def shaped(self, values: pa.Array) -> pa.Array:
        """Return other values in the same lists, if these are in lists."""
        return values if self.offsets is None else pa.ListArray.from_arrays(pa.array(self.offsets), values)


def numbers(column: pa.ChunkedArray, kind: pa.DataType) -> Numbers:
    """Return the numbers of a column in the type that they are calculated with."""
    raw, offsets = elements(column)
    if pa.types.is_boolean(raw.type):
        raw = raw.cast(pa.int8())
    values = raw.cast(kind, safe=False)
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values)
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    return Numbers(values.fill_null(pa.scalar(0, kind)) if nulls.any() else values, nulls, offsets)


def known(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return what is learnt from: the numbers of a column but null, NaN and inf."""
    found = numbers(column, kind)
    return found.values.filter(pc.and_(pa.array(~found.nulls), pc.is_finite(found.values)))


def calculated(rows: pa.Table, columns: Sequence[str], *constants: float | None) -> dict[str, pa.DataType]:
    """Return the types in which values of columns meet constants."""
    return {name: calculated_type(element_type(rows.schema.field(name).type), *constants) for name in columns}


def change(
    rows: pa.Table,
    types: Mapping[str, pa.DataType],
    make: Callable[[Mapping[str, str]], Any],
    *,
    prepare: Callable[[pa.Array, str], pa.Array] | None = None,
    to: Mapping[str, pa.DataType] | None = None,
) -> pa.Table:
    """Send columns through a workflow of one op; nulls stay where they were.

    Args:
        rows: Where they are.
        types: The type that each is calculated with.
        make: Makes the op, given the names of its columns inside the workflow and outside.
        prepare: Settles what the release gets wrong, before the workflow.
        to: The types of the results; without them those of the numbers.
    """
    found = {name: numbers(rows.column(name), kind) for name, kind in types.items()}
    for group in groups(found):
        values = {name: found[name].values for name in group}
        if prepare is not None:
            values = {name: prepare(each, name) for name, each in values.items()}
        made = through(make, values)
        for name in group:
            kind = (to or types)[name]
            results = made[name].cast(kind, safe=False) if made else pa.array([], kind)
            with_nulls = pc.if_else(pa.array(found[name].nulls), pa.scalar(None, kind), results)
            rows = put(rows, name, found[name].shaped(with_nulls))
    return rows


def groups(found: Mapping[str, Numbers]) -> Iterator[list[str]]:
    """Yield columns that have as many values: all single ones together, each one of lists alone."""
    single = [name for name, numbers in found.items() if numbers.offsets is None]
    yield from [single] * bool(single)
    yield from ([name] for name in found if name not in single)


def through(make: Callable[[Mapping[str, str]], Any], values: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return what an op makes of columns of N values each; nothing for no values, on which NVTabular stops."""
    positions = {f"c{position}": name for position, name in enumerate(values)}
    inputs = {position: values[name] for position, name in positions.items()}
    if not any(map(len, inputs.values())):
        return {}
    with quiet():
        graph = list(positions) >> make(positions)
    made = run(graph, inputs)
    return {name: made.column(position).combine_chunks() for position, name in positions.items()}


def fitted(op: Any, values: pa.Array) -> Any:
    """Return an op that has learnt from at least one value, as the column VALUE."""
    library = nvtabular()
    with quiet():
        frame = to_frame({VALUE: values})
        library.Workflow([VALUE] >> op).fit(library.Dataset(frame, schema=schema(frame)))
    return op


def put(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """Return rows with a column changed, or added."""
    if name in rows.column_names:
        return rows.set_column(rows.column_names.index(name), name, values)
    return rows.append_column(name, values)
