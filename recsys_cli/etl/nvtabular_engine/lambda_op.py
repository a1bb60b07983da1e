"""LambdaOp on NVTabular: the expression's tree becomes a function over a frame's columns, each with a mask of its nulls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, run
from recsys_cli.etl.nvtabular_engine.plain import elements, plain
from recsys_cli.features.expression import (
    Binary,
    Expression,
    Kind,
    Literally,
    Name,
    Unary,
    check,
    columns,
    kind_of_type,
    parse,
)
from recsys_cli.features.expression import kind as kind_of
from recsys_cli.features.ops import LambdaOp

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_ROWS = "rows"
"""Name of the input that is always there, because an expression may name no column."""


@dataclass(frozen=True)
class _Operand:
    """N values, int64, float64, bool or text, and N flags where they are none; a literal has single ones.

    Attributes:
        kind: What the values are.
        values: Whatever stands where there is none.
        nulls: The flags.
    """

    kind: Kind
    values: Any
    nulls: Any

    @property
    def numbers(self) -> Any:
        """The values; truth values as 1 and 0."""
        return self.values.astype("int64") if self.kind == "truth" else self.values

    @property
    def truths(self) -> Any:
        """The values as truth values: a number is true unless it is 0."""
        return self.values if self.kind == "truth" else self.values != 0


def apply(op: LambdaOp, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it learns and writes nothing
    """Add the op's column, through a workflow of one LambdaOp.

    Raises:
        ConfigError: The expression mixes text and numbers.
    """
    expression = parse(op.expression)
    kinds = {name: kind_of_type(rows.schema.field(name).type, name) for name in sorted(columns(expression))}
    check(expression, kinds)
    values = _run(op, expression, rows, kinds) if rows.num_rows else pa.array([], op.dtype)
    if op.output in rows.column_names:
        return rows.set_column(rows.column_names.index(op.output), op.output, values)
    return rows.append_column(op.output, values)


def _run(op: LambdaOp, expression: Expression, table: pa.Table, kinds: Mapping[str, Kind]) -> pa.Array:
    inputs: dict[str, pa.Array] = {_ROWS: pa.array(np.zeros(table.num_rows, dtype=np.int64))}
    places = {name: str(place) for place, name in enumerate(kinds)}
    for name, place in places.items():
        raw, _ = elements(table.column(name))
        prepared = plain(raw, name)
        # A division shows the sign of a zero, which a plain column does not have.
        values = raw.fill_null(0.0) if pa.types.is_floating(raw.type) else prepared.values
        nulls = np.zeros(table.num_rows, dtype=bool) if prepared.nulls is None else prepared.nulls
        inputs |= {f"value{place}": _wide(values, kinds[name]), f"null{place}": pa.array(nulls)}

    def function(rows: Any, frame: Any) -> Any:
        found = {
            name: _Operand(kinds[name], frame[f"value{place}"], frame[f"null{place}"]) for name, place in places.items()
        }
        return _typed(_evaluate(expression, found), op.dtype, rows)

    with quiet():
        library = nvtabular()
        needed = [name for name in inputs if name != _ROWS]
        graph = [_ROWS] >> library.ops.LambdaOp(function, dependency=needed or None, dtype=np.dtype(op.dtype))
    values = run(graph, inputs).column(_ROWS).combine_chunks()
    # pandas hands NaN over as null.
    return values.fill_null(float("nan")) if op.dtype.startswith("float") else values


def _wide(values: pa.Array, kind: Kind) -> pa.Array:
    """Return values in the type that is calculated with."""
    if kind == "text":
        return values
    if kind == "truth":
        return values.cast(pa.bool_())
    return values.cast(pa.float64() if pa.types.is_floating(values.type) else pa.int64())


def _evaluate(expression: Expression, found: Mapping[str, _Operand]) -> _Operand:
    match expression:
        case Name(name):
            return found[name]
        case Literally(value):
            return _Operand(kind_of(expression, {}), np.asarray(value)[()], np.False_)
        case Unary("-", operand):
            inner = _evaluate(operand, found)
            return _Operand("number", -inner.numbers, inner.nulls)
        case Unary(_, operand):
            inner = _evaluate(operand, found)
            return _Operand("truth", ~inner.truths, inner.nulls)
        case Binary("and" | "or" as symbol, left, right):
            return _logic(symbol, _evaluate(left, found), _evaluate(right, found))
        case Binary(symbol, left, right):
            return _calculate(symbol, _evaluate(left, found), _evaluate(right, found))


def _logic(symbol: str, left: _Operand, right: _Operand) -> _Operand:
    """Combine truth values; a null stays one unless the other side decides alone."""
    if symbol == "and":
        decided = (~left.nulls & ~left.truths) | (~right.nulls & ~right.truths)
        return _Operand("truth", ~decided & left.truths & right.truths, (left.nulls | right.nulls) & ~decided)
    decided = (~left.nulls & left.truths) | (~right.nulls & right.truths)
    return _Operand("truth", decided | left.truths | right.truths, (left.nulls | right.nulls) & ~decided)


def _calculate(symbol: str, left: _Operand, right: _Operand) -> _Operand:
    values = _OPERATORS[symbol](left.numbers, right.numbers)
    nulls = left.nulls | right.nulls
    if symbol not in "+-*/":
        # Two literal texts compare to a plain bool, which has no `astype`, and of which `~` is a number.
        return _Operand("truth", np.bool_(values) if isinstance(values, bool) else values, nulls)
    return _Operand("number", values, nulls | (values != values))  # noqa: PLR0124 - that is, NaN


def _typed(result: _Operand, dtype: str, rows: Any) -> Any:
    """Return a series of the output's type: no null in it, and 0 for whole numbers that do not fit."""
    # Rows are zeros: adding them makes a series of a literal, and would make 0.0 of -0.0.
    is_series = isinstance(result.values, type(rows))
    values = result.numbers if is_series else rows + result.numbers
    nulls = (rows != 0) | result.nulls
    if dtype.startswith("float"):
        return values.astype(dtype).where(~nulls, np.nan)
    limits = np.iinfo(dtype)
    fits = (values > limits.min - 1) & (values < limits.max + 1) if dtype != "int64" else _fits_int64(values)
    return values.where(fits & ~nulls, 0).astype(dtype)


def _fits_int64(values: Any) -> Any:
    if values.dtype.kind == "i":
        return values == values  # noqa: PLR0124 - all of them
    return (values >= -(2.0**63)) & (values < 2.0**63)
