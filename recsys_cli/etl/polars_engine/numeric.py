"""Numbers on Polars: the type that is calculated with, lists element by element, and what of a column is learnt from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl
import pyarrow as pa

from recsys_cli.features.ops.numeric import calculated_type

TYPES: dict[pa.DataType, pl.DataType] = {
    pa.int8(): pl.Int8(), pa.int16(): pl.Int16(), pa.int32(): pl.Int32(), pa.int64(): pl.Int64(), pa.uint64(): pl.UInt64(),
    pa.float32(): pl.Float32(), pa.float64(): pl.Float64(),
}  # fmt: skip
"""Types that ops on numbers calculate with and give."""
VALUE, WEIGHT = "value", "weight"
"""Columns of what is learnt from: one value, and the interactions that it stands for."""


def elements(frame: pl.LazyFrame, columns: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the types of columns (of a list's elements)."""
    types = frame.select(columns).collect_schema()
    inner = {name: kind.inner if isinstance(kind, pl.List | pl.Array) else kind for name, kind in types.items()}
    return {field.name: field.type for field in pl.DataFrame(schema=inner).to_arrow().schema}


def calculated(frame: pl.LazyFrame, columns: Sequence[str], *constants: float | None) -> dict[str, pa.DataType]:
    """Return the types in which values of columns meet constants."""
    return {name: calculated_type(kind, *constants) for name, kind in elements(frame, columns).items()}


def change(
    frame: pl.LazyFrame,
    types: Mapping[str, pa.DataType],
    function: Callable[[pl.Expr, str], pl.Expr],
    *,
    suffix: str = "",
) -> list[pl.Expr]:
    """Return what becomes of columns.

    Args:
        frame: Where they are.
        types: The type that each is calculated with.
        function: Makes new values of the values of the column that is named; where they are floats, NaN may be among them.
        suffix: What the names of the results end with.
    """
    kinds = frame.select(list(types)).collect_schema()
    changed = []
    for name, kind in types.items():
        values = pl.col(name)
        if isinstance(kinds[name], pl.List | pl.Array):
            lists = pl.List(TYPES[kind])
            every = values.cast(lists).fill_null(pl.lit([], dtype=lists))
            changed.append(every.list.eval(function(pl.element(), name)).alias(name + suffix))
        else:
            changed.append(function(values.cast(TYPES[kind]), name).alias(name + suffix))
    return changed


def missing(values: pl.Expr, kind: pa.DataType) -> pl.Expr:
    """Return whether values are null or NaN."""
    return values.is_null() | values.is_nan() if pa.types.is_floating(kind) else values.is_null()


def fill(values: pl.Expr, kind: pa.DataType, constant: float) -> pl.Expr:
    """Return values with a constant for null and NaN."""
    if not pa.types.is_floating(kind):
        return values.fill_null(int(constant))
    return pl.when(values.is_not_nan()).then(values).otherwise(float(constant))  # null is neither NaN nor not


def known(
    frame: pl.LazyFrame,
    column: str,
    weight: pl.Expr,
    *,
    kind: pa.DataType = pa.float64(),  # noqa: B008 - types do not change
) -> pl.LazyFrame:
    """Return what is learnt from: values of a column but null, NaN and inf, as VALUE, beside their WEIGHT.

    Args:
        frame: Where the column is.
        column: Numbers, or lists of them.
        weight: How many interactions of train each row stands for; a row that stands for none is left out.
        kind: The type that is calculated with.
    """
    in_lists = isinstance(frame.select(column).collect_schema()[column], pl.List | pl.Array)
    held = pl.List(TYPES[kind]) if in_lists else TYPES[kind]
    values = frame.select(pl.col(column).cast(held).alias(VALUE), weight.alias(WEIGHT))
    values = values.explode(VALUE) if in_lists else values
    return values.filter(pl.col(VALUE).is_finite() & (pl.col(WEIGHT) > 0))
