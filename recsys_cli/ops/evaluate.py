"""Expressions on NumPy and on Polars; LambdaOp has the semantics.

On NumPy the syntax tree compiles to a function over columns and their null masks, on Polars to an expression.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
)
from recsys_cli.ops.values import Values
from recsys_cli.packages import pc, pl

Array = npt.NDArray[Any]
Operand = tuple[Array, Array]
"""Values (int64, float64, bool or objects of text; arbitrary under the mask) and null mask; shape (N,), or (1,) for all rows."""
Evaluate = Callable[[Mapping[str, Operand]], Operand]

_OPERATORS: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_LARGEST = np.uint64(2**63 - 1)
_PRESENT = np.zeros(1, dtype=bool)


def numbers_of(expression: Expression, kinds: Mapping[str, Kind]) -> Evaluate:
    """Compile an expression to int64 or float64; booleans become 1 and 0.

    Args:
        expression: A checked expression.
        kinds: Types of its columns.
    """
    compiled = _any(expression, kinds)
    return _then(compiled, _as_numbers) if kind(expression, kinds) == "truth" else compiled


def _as_numbers(values: Array, nulls: Array) -> Operand:
    return values.astype(np.int64), nulls


def _as_truths(values: Array, nulls: Array) -> Operand:
    return values != 0, nulls


def _then(compiled: Evaluate, function: Callable[[Array, Array], Operand]) -> Evaluate:
    return lambda columns: function(*compiled(columns))


def _truth(expression: Expression, kinds: Mapping[str, Kind]) -> Evaluate:
    compiled = _any(expression, kinds)
    return compiled if kind(expression, kinds) == "truth" else _then(compiled, _as_truths)


def _any(expression: Expression, kinds: Mapping[str, Kind]) -> Evaluate:
    match expression:
        case Name(name):
            return lambda columns: columns[name]
        case LiteralValue(value):
            literal = np.array([value], dtype=object if isinstance(value, str) else None), _PRESENT
            return lambda _: literal
        case Unary("-", operand):
            return _then(numbers_of(operand, kinds), lambda values, nulls: (-values, nulls))
        case Unary(_, operand):
            return _then(_truth(operand, kinds), lambda values, nulls: (~values, nulls))
        case Binary("and" | "or" as symbol, left, right):
            return _logic(symbol, _truth(left, kinds), _truth(right, kinds))
        case Binary(symbol, left, right):
            of = _any if kind(left, kinds) == "text" else numbers_of
            return _calculated(symbol, of(left, kinds), of(right, kinds))
        case Call():
            return _called(expression, kinds)


def _calculated(symbol: str, left: Evaluate, right: Evaluate) -> Evaluate:
    function, calculates = _OPERATORS[symbol], symbol in "+-*/"

    def evaluate(columns: Mapping[str, Operand]) -> Operand:
        (one, one_nulls), (other, other_nulls) = left(columns), right(columns)
        values, nulls = function(one, other), one_nulls | other_nulls
        return (values, nulls | np.isnan(values)) if calculates else (values, nulls)

    return evaluate


def _logic(symbol: str, left: Evaluate, right: Evaluate) -> Evaluate:
    decisive = symbol == "or"

    def evaluate(columns: Mapping[str, Operand]) -> Operand:
        (one, one_nulls), (other, other_nulls) = left(columns), right(columns)
        decided = (~one_nulls & (one == decisive)) | (~other_nulls & (other == decisive))
        values = (one | other) if decisive else (one & other)
        return np.where(decided, decisive, values), (one_nulls | other_nulls) & ~decided

    return evaluate


def _called(call: Call, kinds: Mapping[str, Kind]) -> Evaluate:
    match call:
        case Call("if", (condition, then, otherwise)):
            of = numbers_of if kind(call, kinds) == "number" else _any
            return _either(_truth(condition, kinds), of(then, kinds), of(otherwise, kinds))
        case Call("is_null", (operand,)):
            return _then(_any(operand, kinds), lambda _, nulls: (nulls, _PRESENT))
        case Call("length", (operand,)):
            return _then(_any(operand, kinds), _length)
        case Call("lower", (operand,)):
            return _then(_any(operand, kinds), _lower)
    function = _FUNCTIONS[call.function]
    arguments = [numbers_of(argument, kinds) for argument in call.arguments]
    return lambda columns: function(*(argument(columns) for argument in arguments))


def _either(condition: Evaluate, then: Evaluate, otherwise: Evaluate) -> Evaluate:
    def evaluate(columns: Mapping[str, Operand]) -> Operand:
        (decided, undecided), (one, one_nulls), (other, other_nulls) = (
            condition(columns),
            then(columns),
            otherwise(columns),
        )
        return np.where(decided, one, other), undecided | np.where(decided, one_nulls, other_nulls)

    return evaluate


def _greater(one: Operand, other: Operand) -> Operand:
    return np.where(one[0] >= other[0], one[0], other[0]), one[1] | other[1]


def _smaller(one: Operand, other: Operand) -> Operand:
    return np.where(one[0] <= other[0], one[0], other[0]), one[1] | other[1]


def _clip(number: Operand, low: Operand, high: Operand) -> Operand:
    return _smaller(_greater(number, low), high)


def _log(number: Operand) -> Operand:
    values = np.log(number[0].astype(np.float64))
    return values, number[1] | np.isnan(values)


def _round(number: Operand) -> Operand:
    return np.round(number[0]), number[1]


def _length(texts: Array, nulls: Array) -> Operand:
    return np.array([len(text) for text in texts], dtype=np.int64), nulls


def _lower(texts: Array, nulls: Array) -> Operand:
    """Convert text to lower case; outside ASCII by Arrow, as the engines do: case tables differ between libraries."""
    lowered = np.empty(len(texts), dtype=object)
    lowered[:] = [
        text.lower() if text.isascii() else pc.utf8_lower(pa.scalar(text, pa.string())).as_py() for text in texts
    ]
    return lowered, nulls


def _part(of_time: Callable[[Array], Array]) -> Callable[[Operand], Operand]:
    def part(seconds: Operand) -> Operand:
        floored = np.floor(seconds[0].astype(np.float64))
        valid = (floored >= FIRST_SECOND) & (floored <= LAST_SECOND)
        return of_time(np.where(valid, floored, 0.0).astype(np.int64)), seconds[1] | ~valid

    return part


def _months(seconds: Array) -> Array:
    return seconds.astype("M8[s]").astype("M8[M]").astype(np.int64)


def _day(seconds: Array) -> Array:
    dates = seconds.astype("M8[s]")
    return (dates.astype("M8[D]") - dates.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1


_FUNCTIONS: dict[str, Callable[..., Operand]] = {
    "log": _log,
    "round": _round,
    "min": _smaller,
    "max": _greater,
    "clip": _clip,
    "year": _part(lambda seconds: _months(seconds) // 12 + 1970),
    "month": _part(lambda seconds: _months(seconds) % 12 + 1),
    "day": _part(_day),
    "weekday": _part(lambda seconds: (seconds // _DAY + 3) % 7),  # the first day of 1970 was a Thursday
    "hour": _part(lambda seconds: seconds % _DAY // _HOUR),
    "minute": _part(lambda seconds: seconds % _HOUR // _MINUTE),
}


def operand_of(kind: pa.DataType, held: Kind) -> Callable[[Values], Operand]:
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


def polars_expression(expression: Expression, frame: pl.LazyFrame) -> pl.Expr:
    """Compile an expression over the columns of a query: int64 or float64, null for missing values."""
    read = frame.select(sorted(columns(expression))).collect_schema()
    raw = pl.DataFrame(schema=read).to_arrow().schema
    compiler = _PolarsCompiler(read, {field.name: kind_of_type(field.type, field.name) for field in raw})
    check(expression, compiler.kinds)
    return compiler.number(expression)


_POLARS_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "and": operator.and_, "or": operator.or_,
}  # fmt: skip


class _PolarsCompiler:
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
                both: pl.Expr = _POLARS_OPERATORS[symbol](self._truth(left), self._truth(right))
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
                return self._any(operand).map_batches(_lower_series, return_dtype=pl.String, is_elementwise=True)
        return _POLARS_FUNCTIONS[call.function](*map(self.number, call.arguments))

    def _calculated(self, symbol: str, left: Expression, right: Expression) -> pl.Expr:
        if kind(left, self.kinds) == "text":
            compared: pl.Expr = _POLARS_OPERATORS[symbol](self._any(left), self._any(right))
            return compared
        values: pl.Expr = _POLARS_OPERATORS[symbol](self.number(left), self.number(right))
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


def _lower_series(texts: pl.Series) -> pl.Series:
    """Convert strings to lower case by Arrow, in both engines: case tables differ between libraries."""
    arrow = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pl.Series(texts.name, pl.from_arrow(pc.utf8_lower(arrow.cast(pa.large_string()))))


def _greater_expression(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    return pl.when(one >= other).then(one).when(one < other).then(other)


def _smaller_expression(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    return pl.when(one <= other).then(one).when(one > other).then(other)


def _time(number: pl.Expr) -> pl.Expr:
    """Convert seconds since 1970 to datetimes; null outside the supported dates."""
    seconds = number.cast(pl.Float64).floor()
    valid = pl.when(seconds.is_between(FIRST_SECOND, LAST_SECOND)).then(seconds).cast(pl.Int64)
    return (valid * _PER_SECOND["us"]).cast(pl.Datetime("us"))


_POLARS_FUNCTIONS: dict[str, Callable[..., pl.Expr]] = {
    "log": lambda number: number.cast(pl.Float64).log().fill_nan(None),
    "round": lambda number: number.round(mode="half_to_even"),
    "min": _smaller_expression,
    "max": _greater_expression,
    "clip": lambda number, low, high: _smaller_expression(_greater_expression(number, low), high),
    "year": lambda seconds: _time(seconds).dt.year().cast(pl.Int64),
    "month": lambda seconds: _time(seconds).dt.month().cast(pl.Int64),
    "day": lambda seconds: _time(seconds).dt.day().cast(pl.Int64),
    "weekday": lambda seconds: _time(seconds).dt.weekday().cast(pl.Int64) - 1,
    "hour": lambda seconds: _time(seconds).dt.hour().cast(pl.Int64),
    "minute": lambda seconds: _time(seconds).dt.minute().cast(pl.Int64),
}
