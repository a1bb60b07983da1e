"""Numeric columns on Polars: types of calculations, lists by element, and the values for statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl
import pyarrow as pa

from recsys_cli.ops.filling import FILLED
from recsys_cli.ops.numeric import calculated_type

TYPES: dict[pa.DataType, pl.DataType] = {
    pa.int8(): pl.Int8(), pa.int16(): pl.Int16(), pa.int32(): pl.Int32(), pa.int64(): pl.Int64(), pa.uint64(): pl.UInt64(),
    pa.float32(): pl.Float32(), pa.float64(): pl.Float64(),
}  # fmt: skip
"""Types of calculations and results of numeric ops."""
VALUE, WEIGHT = "value", "weight"
"""Columns of `finite_values`: a value, and its number of interactions."""


def elements(frame: pl.LazyFrame, columns: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the types of columns; of the elements for lists."""
    types = frame.select(columns).collect_schema()
    inner = {name: kind.inner if isinstance(kind, pl.List | pl.Array) else kind for name, kind in types.items()}
    return {field.name: field.type for field in pl.DataFrame(schema=inner).to_arrow().schema}


def calculated(frame: pl.LazyFrame, columns: Sequence[str], *constants: float | None) -> dict[str, pa.DataType]:
    """Return the types of calculations with columns and constants."""
    return {name: calculated_type(kind, *constants) for name, kind in elements(frame, columns).items()}


def change(
    frame: pl.LazyFrame,
    types: Mapping[str, pa.DataType],
    function: Callable[[pl.Expr, str], pl.Expr],
    *,
    suffix: str = "",
) -> list[pl.Expr]:
    """Return expressions for transformed columns, by element for lists.

    `types` are those of the calculation; `function` gets values (floats may include NaN) and the column's name.
    """
    kinds = frame.select(list(types)).collect_schema()
    changed = []
    for name, kind in types.items():
        values = pl.col(name)
        if isinstance(kinds[name], pl.List | pl.Array):
            lists = pl.List(TYPES[kind])
            filled = values.cast(lists).fill_null(pl.lit([], dtype=lists))
            changed.append(filled.list.eval(function(pl.element(), name)).alias(name + suffix))
        else:
            changed.append(function(values.cast(TYPES[kind]), name).alias(name + suffix))
    return changed


def filled(
    frame: pl.LazyFrame, types: Mapping[str, pa.DataType], constants: Mapping[str, float], *, indicators: bool
) -> pl.LazyFrame:
    """Replace null and NaN by a constant per column; `indicators` adds flags of the filled values."""
    columns = change(frame, types, lambda values, name: _fill(values, types[name], constants[name]))
    if indicators:
        columns += change(frame, types, lambda values, name: _missing(values, types[name]).cast(pl.Int8), suffix=FILLED)
    return frame.with_columns(columns)


def _missing(values: pl.Expr, kind: pa.DataType) -> pl.Expr:
    return values.is_null() | values.is_nan() if pa.types.is_floating(kind) else values.is_null()


def _fill(values: pl.Expr, kind: pa.DataType, constant: float) -> pl.Expr:
    if not pa.types.is_floating(kind):
        return values.fill_null(int(constant))
    # `otherwise` covers null as well, because is_not_nan() of null is null.
    return pl.when(values.is_not_nan()).then(values).otherwise(float(constant))


def finite_values(
    frame: pl.LazyFrame,
    column: str,
    weight: pl.Expr,
    *,
    kind: pa.DataType = pa.float64(),  # noqa: B008 - types do not change
) -> pl.LazyFrame:
    """Return the finite values of a column, or of its list elements, as VALUE with a positive WEIGHT.

    `kind` is the type of the calculation.
    """
    is_list = isinstance(frame.select(column).collect_schema()[column], pl.List | pl.Array)
    dtype = pl.List(TYPES[kind]) if is_list else TYPES[kind]
    values = frame.select(pl.col(column).cast(dtype).alias(VALUE), weight.alias(WEIGHT))
    values = values.explode(VALUE) if is_list else values
    return values.filter(pl.col(VALUE).is_finite() & (pl.col(WEIGHT) > 0))
