"""LambdaOp on NumPy: the syntax tree compiles to a function over columns and their null masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops import LambdaOp
from recsys_cli.ops.evaluate import Operand, numbers_of
from recsys_cli.ops.expression import Kind, check, columns, kind_of_type, parse
from recsys_cli.serving.encoder.values import Apply, Array, Columns, Types, Values, element

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_LARGEST = np.uint64(2**63 - 1)


def compiled(op: LambdaOp, state: Mapping[str, pa.Table], types: Types) -> Apply:  # noqa: ARG001 - stateless op
    """Add the op's column.

    Raises:
        ConfigError: The expression mixes text and numbers.
    """
    expression = parse(op.expression)
    kinds = {name: kind_of_type(types[name], name) for name in sorted(columns(expression))}
    check(expression, kinds)
    reads = {name: _operand(element(types[name]), kinds[name]) for name in kinds}
    evaluate, finish = numbers_of(expression, kinds), _finish(op.dtype)
    types[op.output] = pa.type_for_alias(op.dtype)

    def apply(rows_of: Columns, rows: int) -> None:
        values, nulls = evaluate({name: read(rows_of[name]) for name, read in reads.items()})
        if len(values) != rows or len(nulls) != rows:  # literals have one entry
            values, nulls = np.broadcast_to(values, (rows,)), np.broadcast_to(nulls, (rows,))
        rows_of[op.output] = Values(finish(values, nulls))

    return apply


def _operand(kind: pa.DataType, held: Kind) -> Callable[[Values], Operand]:
    """Return the conversion of a column to the type of the calculation, with a null mask."""
    if held == "text":
        return _texts
    if held == "truth":
        return lambda values: (values.data, _mask(values))
    if pa.types.is_floating(kind):
        return lambda values: (values.data.astype(np.float64, copy=False), np.isnan(values.data))
    if pa.types.is_uint64(kind):
        return _unsigned
    per_second, factor = _scale(kind)
    return lambda values: (values.data.astype(np.int64, copy=False) // per_second * factor, _mask(values))


def _scale(kind: pa.DataType) -> tuple[int, int]:
    """Return the divisor and the factor from a stored integer to seconds."""
    if pa.types.is_date32(kind):
        return 1, _DAY
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        return _PER_SECOND["ms" if pa.types.is_date64(kind) else kind.unit], 1
    return 1, 1


def _mask(values: Values) -> Array:
    return np.zeros(len(values.data), dtype=bool) if values.nulls is None else values.nulls


def _texts(values: Values) -> Operand:
    if values.nulls is None:
        return values.data, _mask(values)
    return np.where(values.nulls, "", values.data), values.nulls


def _unsigned(values: Values) -> Operand:
    fits = values.data <= _LARGEST
    return np.where(fits, values.data, np.uint64(0)).astype(np.int64), _mask(values) | ~fits


def _finish(dtype: str) -> Callable[[Array, Array], Array]:
    """Return the cast to the output type: a null is NaN, or 0 as an integer, and so is a number out of range."""
    if dtype.startswith("float"):
        return lambda values, nulls: np.where(nulls, np.nan, values).astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max

    def whole(values: Array, nulls: Array) -> Array:
        if dtype != "int64":
            fits = (values > low - 1) & (values < high + 1) & ~nulls
        else:
            fits = ~nulls if values.dtype.kind == "i" else (values >= -(2.0**63)) & (values < 2.0**63) & ~nulls
        return np.where(fits, values, values.dtype.type(0)).astype(dtype)

    return whole
