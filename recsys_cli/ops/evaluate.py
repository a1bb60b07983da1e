"""Expressions on NumPy and on Polars; LambdaOp has the semantics.

A syntax tree compiles to a function over columns and their null masks, or to an expression of Polars.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.ops.expression import (
    FIRST_SECOND,
    FUNCTIONS,
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
Compiled = TypeVar("Compiled")

_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_LARGEST = np.uint64(2**63 - 1)
_PRESENT = np.zeros(1, dtype=bool)


class _Translator(Generic[Compiled]):
    """Compiles a syntax tree for one library; `kinds` are the types of its columns."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = kinds

    def column(self, name: str) -> Compiled:
        """Return the values of a column: int64, float64, booleans or text."""
        raise NotImplementedError

    def literal(self, value: float | str) -> Compiled:
        """Return a literal."""
        raise NotImplementedError

    def apply(self, function: str, *operands: Compiled) -> Compiled:
        """Apply an operator or a function; "number" and "truth" convert."""
        raise NotImplementedError

    def number(self, expression: Expression) -> Compiled:
        """Compile to int64 or float64; booleans become 1 and 0."""
        compiled = self.value(expression)
        return self.apply("number", compiled) if kind(expression, self.kinds) == "truth" else compiled

    def truth(self, expression: Expression) -> Compiled:
        """Compile to booleans; every number except 0 is true."""
        compiled = self.value(expression)
        return compiled if kind(expression, self.kinds) == "truth" else self.apply("truth", compiled)

    def value(self, expression: Expression) -> Compiled:
        """Compile to the type of the expression."""
        match expression:
            case Name(name):
                return self.column(name)
            case LiteralValue(value):
                return self.literal(value)
            case Unary(symbol, operand):
                return self.apply(f"{symbol}x", self.number(operand) if symbol == "-" else self.truth(operand))
            case Binary("and" | "or" as symbol, left, right):
                return self.apply(symbol, self.truth(left), self.truth(right))
            case Binary(symbol, left, right):
                of = self.value if kind(left, self.kinds) == "text" else self.number
                return self.apply(symbol, of(left), of(right))
            case Call("if", (condition, then, otherwise)):
                of = self.number if kind(expression, self.kinds) == "number" else self.value
                return self.apply("if", self.truth(condition), of(then), of(otherwise))
            case Call(function, arguments):
                of = self.number if FUNCTIONS[function].takes[0] == "number" else self.value
                return self.apply(function, *map(of, arguments))


def numbers_of(expression: Expression, kinds: Mapping[str, Kind]) -> Evaluate:
    """Compile a checked expression to int64 or float64; booleans become 1 and 0."""
    return _NumPyTranslator(kinds).number(expression)


class _NumPyTranslator(_Translator[Evaluate]):
    def column(self, name: str) -> Evaluate:
        return operator.itemgetter(name)

    def literal(self, value: float | str) -> Evaluate:
        literal = np.array([value], dtype=object if isinstance(value, str) else None), _PRESENT
        return lambda _: literal

    def apply(self, function: str, *operands: Evaluate) -> Evaluate:
        compute = _ON_NUMPY[function]
        return lambda columns: compute(*(operand(columns) for operand in operands))


def _calculated(function: Callable[[Array, Array], Array], one: Operand, other: Operand) -> Operand:
    values = function(one[0], other[0])
    return values, one[1] | other[1] | np.isnan(values)


def _compared(function: Callable[[Array, Array], Array], one: Operand, other: Operand) -> Operand:
    return function(one[0], other[0]), one[1] | other[1]


def _logic(decisive: bool, one: Operand, other: Operand) -> Operand:
    decided = (~one[1] & (one[0] == decisive)) | (~other[1] & (other[0] == decisive))
    values = (one[0] | other[0]) if decisive else (one[0] & other[0])
    return np.where(decided, decisive, values), (one[1] | other[1]) & ~decided


def _either(condition: Operand, one: Operand, other: Operand) -> Operand:
    decided, undecided = condition
    return np.where(decided, one[0], other[0]), undecided | np.where(decided, one[1], other[1])


def _greater(one: Operand, other: Operand) -> Operand:
    return np.where(one[0] >= other[0], one[0], other[0]), one[1] | other[1]


def _smaller(one: Operand, other: Operand) -> Operand:
    return np.where(one[0] <= other[0], one[0], other[0]), one[1] | other[1]


def _log(number: Operand) -> Operand:
    values = np.log(number[0].astype(np.float64))
    return values, number[1] | np.isnan(values)


def _lower(texts: Operand) -> Operand:
    """Convert text to lower case; outside ASCII by Arrow, as the engines do: case tables differ between libraries."""
    lowered = np.empty(len(texts[0]), dtype=object)
    lowered[:] = [
        text.lower() if text.isascii() else pc.utf8_lower(pa.scalar(text, pa.string())).as_py() for text in texts[0]
    ]
    return lowered, texts[1]


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


_ON_NUMPY: dict[str, Callable[..., Operand]] = {
    "number": lambda truth: (truth[0].astype(np.int64), truth[1]),
    "truth": lambda number: (number[0] != 0, number[1]),
    "-x": lambda number: (-number[0], number[1]),
    "notx": lambda truth: (~truth[0], truth[1]),
    "+": partial(_calculated, np.add),
    "-": partial(_calculated, np.subtract),
    "*": partial(_calculated, np.multiply),
    "/": partial(_calculated, np.true_divide),
    "<": partial(_compared, np.less),
    "<=": partial(_compared, np.less_equal),
    ">": partial(_compared, np.greater),
    ">=": partial(_compared, np.greater_equal),
    "==": partial(_compared, np.equal),
    "!=": partial(_compared, np.not_equal),
    "and": partial(_logic, False),
    "or": partial(_logic, True),
    "if": _either,
    "is_null": lambda values: (values[1], _PRESENT),
    "length": lambda texts: (np.array([len(text) for text in texts[0]], dtype=np.int64), texts[1]),
    "lower": _lower,
    "log": _log,
    "round": lambda number: (np.round(number[0]), number[1]),
    "min": _smaller,
    "max": _greater,
    "clip": lambda number, low, high: _smaller(_greater(number, low), high),
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
    kinds = {field.name: kind_of_type(field.type, field.name) for field in raw}
    check(expression, kinds)
    return _PolarsTranslator(kinds, read).number(expression)


class _PolarsTranslator(_Translator["pl.Expr"]):
    """Compiles to expressions over int64, float64, booleans and strings; NaN becomes null."""

    def __init__(self, kinds: Mapping[str, Kind], types: Mapping[str, pl.DataType]) -> None:
        super().__init__(kinds)
        self.types = types

    def column(self, name: str) -> pl.Expr:
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

    def literal(self, value: float | str) -> pl.Expr:
        return pl.lit(value, dtype=pl.Int64 if type(value) is int else None)

    def apply(self, function: str, *operands: pl.Expr) -> pl.Expr:
        return _ON_POLARS[function](*operands)


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


_ON_POLARS: dict[str, Callable[..., pl.Expr]] = {
    "number": lambda truth: truth.cast(pl.Int64),
    "truth": lambda number: number != 0,
    "-x": operator.neg,
    "notx": operator.invert,
    "+": lambda one, other: (one + other).fill_nan(None),
    "-": lambda one, other: (one - other).fill_nan(None),
    "*": lambda one, other: (one * other).fill_nan(None),
    "/": lambda one, other: (one / other).fill_nan(None),
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
    "if": lambda condition, one, other: pl.when(condition).then(one).when(~condition).then(other),
    "is_null": lambda values: values.is_null(),
    "length": lambda texts: texts.str.len_chars().cast(pl.Int64),
    "lower": lambda texts: texts.map_batches(_lower_series, return_dtype=pl.String, is_elementwise=True),
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
