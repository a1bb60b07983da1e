"""LambdaOp on Polars: the syntax tree compiles to a Polars expression."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.ops import LambdaOp
from recsys_cli.ops.expression import (
    FIRST_SECOND,
    LAST_SECOND,
    Binary,
    Call,
    Expression,
    Kind,
    LiteralValue,
    Name,
    Unary,
    check,
    columns,
    kind,
    kind_of_type,
    parse,
)

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "and": operator.and_, "or": operator.or_,
}  # fmt: skip
_TYPES: dict[str, Any] = {
    "int8": pl.Int8, "int16": pl.Int16, "int32": pl.Int32, "int64": pl.Int64, "float32": pl.Float32, "float64": pl.Float64,
}  # fmt: skip
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400


def apply(op: LambdaOp, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Add the op's column."""
    expression = parse(op.expression)
    values = compiled(expression, frame)
    missing = float("nan") if op.dtype.startswith("float") else 0
    return frame.with_columns(values.cast(_TYPES[op.dtype], strict=False).fill_null(missing).alias(op.output))


def compiled(expression: Expression, frame: pl.LazyFrame) -> pl.Expr:
    """Compile an expression: int64 or float64, null for missing values."""
    read = frame.select(sorted(columns(expression))).collect_schema()
    raw = pl.DataFrame(schema=read).to_arrow().schema
    compiler = _Compiler(read, {field.name: kind_of_type(field.type, field.name) for field in raw})
    check(expression, compiler.kinds)
    return compiler.number(expression)


class _Compiler:
    """Compiles a syntax tree over int64, float64, booleans and strings; NaN becomes null."""

    def __init__(self, types: Mapping[str, pl.DataType], kinds: Mapping[str, Kind]) -> None:
        self.types = types
        self.kinds = kinds

    def number(self, expression: Expression) -> pl.Expr:
        """Compile to numbers; booleans become 1 and 0."""
        compiled = self._any(expression)
        return compiled.cast(pl.Int64) if kind(expression, self.kinds) == "truth" else compiled

    def _truth(self, expression: Expression) -> pl.Expr:
        compiled = self._any(expression)
        return compiled if kind(expression, self.kinds) == "truth" else compiled != 0

    def _any(self, expression: Expression) -> pl.Expr:
        match expression:
            case Name(name):
                return self._column(name)
            case LiteralValue(value):
                return pl.lit(value, dtype=pl.Int64 if type(value) is int else None)
            case Unary("-", operand):
                return -self.number(operand)
            case Unary(_, operand):
                return ~self._truth(operand)
            case Binary("and" | "or" as symbol, left, right):
                both: pl.Expr = _OPERATORS[symbol](self._truth(left), self._truth(right))
                return both
            case Binary(symbol, left, right):
                return self._calculated(symbol, left, right)
            case Call():
                return self._called(expression)

    def _called(self, call: Call) -> pl.Expr:
        match call:
            case Call("if", (condition, then, otherwise)):
                either = self.number if kind(call, self.kinds) == "number" else self._any
                decided = self._truth(condition)
                return pl.when(decided).then(either(then)).when(~decided).then(either(otherwise))
            case Call("is_null", (operand,)):
                return self._any(operand).is_null()
            case Call("length", (operand,)):
                return self._any(operand).str.len_chars().cast(pl.Int64)
            case Call("lower", (operand,)):
                return self._any(operand).map_batches(_lower, return_dtype=pl.String, is_elementwise=True)
        return _FUNCTIONS[call.function](*map(self.number, call.arguments))

    def _calculated(self, symbol: str, left: Expression, right: Expression) -> pl.Expr:
        if kind(left, self.kinds) == "text":
            compared: pl.Expr = _OPERATORS[symbol](self._any(left), self._any(right))
            return compared
        values: pl.Expr = _OPERATORS[symbol](self.number(left), self.number(right))
        return values.fill_nan(None) if symbol in "+-*/" else values

    def _column(self, name: str) -> pl.Expr:
        column, held = pl.col(name), self.types[name]
        if self.kinds[name] == "text":
            return column.cast(pl.String)
        if self.kinds[name] == "truth":
            return column
        if isinstance(held, pl.Date):
            return column.cast(pl.Int32).cast(pl.Int64) * _DAY
        if isinstance(held, pl.Datetime):
            return column.cast(pl.Int64) // _PER_SECOND[held.time_unit]
        if isinstance(held, pl.UInt64):
            return column.cast(pl.Int64, strict=False)  # null outside int64
        return column.cast(pl.Float64).fill_nan(None) if held.is_float() else column.cast(pl.Int64)


def _lower(texts: pl.Series) -> pl.Series:
    """Convert strings to lower case by Arrow, in both engines: case tables differ between libraries."""
    arrow = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pl.Series(texts.name, pl.from_arrow(pc.utf8_lower(arrow.cast(pa.large_string()))))


def _greater(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    return pl.when(one >= other).then(one).when(one < other).then(other)


def _smaller(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    return pl.when(one <= other).then(one).when(one > other).then(other)


def _time(number: pl.Expr) -> pl.Expr:
    """Convert seconds since 1970 to datetimes; null outside the supported dates."""
    seconds = number.cast(pl.Float64).floor()
    valid = pl.when(seconds.is_between(FIRST_SECOND, LAST_SECOND)).then(seconds).cast(pl.Int64)
    return (valid * _PER_SECOND["us"]).cast(pl.Datetime("us"))


_FUNCTIONS: dict[str, Callable[..., pl.Expr]] = {
    "log": lambda number: number.cast(pl.Float64).log().fill_nan(None),
    "round": lambda number: number.round(mode="half_to_even"),
    "min": _smaller,
    "max": _greater,
    "clip": lambda number, low, high: _smaller(_greater(number, low), high),
    "year": lambda seconds: _time(seconds).dt.year().cast(pl.Int64),
    "month": lambda seconds: _time(seconds).dt.month().cast(pl.Int64),
    "day": lambda seconds: _time(seconds).dt.day().cast(pl.Int64),
    "weekday": lambda seconds: _time(seconds).dt.weekday().cast(pl.Int64) - 1,
    "hour": lambda seconds: _time(seconds).dt.hour().cast(pl.Int64),
    "minute": lambda seconds: _time(seconds).dt.minute().cast(pl.Int64),
}
