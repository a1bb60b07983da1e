"""Numeric columns for NVTabular: flat, of one type, without nulls; and workflows of one op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nan import nan_to_null
from recsys_cli.etl.nvtabular_engine.frames import fit, quiet, run
from recsys_cli.etl.nvtabular_engine.plain import element_type, elements, set_column
from recsys_cli.ops.numeric import calculated_type

VALUE = "value"
"""Column name in frames for fitting."""


@dataclass(frozen=True)
class Numbers:
    """Numbers of a column.

    Attributes:
        values: Numbers, (N,), flattened for lists; 0 for nulls.
        nulls: Mask of null and NaN, (N,).
        offsets: Offsets of the lists; None for a scalar column.
    """

    values: pa.Array
    nulls: npt.NDArray[np.bool_]
    offsets: npt.NDArray[np.int32] | None

    def shaped(self, values: pa.Array) -> pa.Array:
        """Return other values in the shape of the column, as lists by `offsets`."""
        return values if self.offsets is None else pa.ListArray.from_arrays(pa.array(self.offsets), values)


def numbers(column: pa.ChunkedArray, kind: pa.DataType) -> Numbers:
    """Return the numbers of a column in the type of the calculation."""
    raw, offsets = elements(column)
    if pa.types.is_boolean(raw.type):
        raw = raw.cast(pa.int8())
    values = nan_to_null(raw.cast(kind, safe=False))
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    return Numbers(values.fill_null(pa.scalar(0, kind)) if nulls.any() else values, nulls, offsets)


def finite_values(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the finite, non-null numbers of a column."""
    flat = numbers(column, kind)
    return flat.values.filter(pc.and_(pa.array(~flat.nulls), pc.is_finite(flat.values)))


def calculated(rows: pa.Table, columns: Sequence[str], *constants: float | None) -> dict[str, pa.DataType]:
    """Return the types of calculations with columns and constants."""
    return {name: calculated_type(element_type(rows.schema.field(name).type), *constants) for name in columns}


def change(
    rows: pa.Table,
    types: Mapping[str, pa.DataType],
    make: Callable[[Mapping[str, str]], Any],
    *,
    prepare: Callable[[pa.Array, str], pa.Array] | None = None,
    to: Mapping[str, pa.DataType] | None = None,
) -> pa.Table:
    """Transform columns by a workflow of one op; nulls stay null.

    `types` are those of the calculation, `to` (default: `types`) of the results. `make` creates the op from column name
    in the workflow → in the rows. `prepare` changes values before the workflow, around defects of NVTabular 23.08.
    """
    columns = {name: numbers(rows.column(name), kind) for name, kind in types.items()}
    for group in groups(columns):
        values = {name: columns[name].values for name in group}
        if prepare is not None:
            values = {name: prepare(each, name) for name, each in values.items()}
        made = run_op(make, values)
        for name in group:
            kind = (to or types)[name]
            results = made[name].cast(kind, safe=False) if made else pa.array([], kind)
            with_nulls = pc.if_else(pa.array(columns[name].nulls), pa.scalar(None, kind), results)
            rows = set_column(rows, name, columns[name].shaped(with_nulls))
    return rows


def groups(columns: Mapping[str, Numbers]) -> Iterator[list[str]]:
    """Yield columns of equal length: the scalar ones, then each list column."""
    scalar = [name for name, numbers in columns.items() if numbers.offsets is None]
    yield from [scalar] * bool(scalar)
    yield from ([name] for name in columns if name not in scalar)


def run_op(make: Callable[[Mapping[str, str]], Any], values: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the results of an op for columns, (N,) each; none for N = 0, an error in NVTabular."""
    positions = {f"c{position}": name for position, name in enumerate(values)}
    inputs = {position: values[name] for position, name in positions.items()}
    if not any(map(len, inputs.values())):
        return {}
    with quiet():
        graph = list(positions) >> make(positions)
    made = run(graph, inputs)
    return {name: made.column(position).combine_chunks() for position, name in positions.items()}


def fitted(op: Any, values: pa.Array) -> Any:
    """Fit an op on at least one value, as the column VALUE."""
    with quiet():
        fit([VALUE] >> op, {VALUE: values})
    return op
