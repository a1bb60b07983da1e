"""Expressions on NumPy: the syntax tree compiles to a function over columns and their null masks; LambdaOp has the semantics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    kind,
)

Array = npt.NDArray[Any]
Operand = tuple[Array, Array]
"""Values (int64, float64, bool or objects of text; arbitrary under the mask) and null mask; shape (N,), or (1,) for all rows."""
Evaluate = Callable[[Mapping[str, Operand]], Operand]

_OPERATORS: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
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
