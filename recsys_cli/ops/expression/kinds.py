"""Type checker of expressions, before any row is read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.ops.expression.functions import FUNCTIONS
from recsys_cli.ops.expression.tree import Binary, Call, Expression, Kind, LiteralValue, Name, Unary, shown

_ARITHMETIC = frozenset({"+", "-", "*", "/"})
_CALCULATING = _ARITHMETIC | {"and", "or"}
_IN_WORDS = {"number": "a number", "truth": "a boolean", "text": "text"}


def kind(expression: Expression, kinds: Mapping[str, Kind]) -> Kind:
    """Return the type of an expression, from the types of its columns.

    Raises:
        ConfigError: Arithmetic on text, a comparison of text with numbers, or a wrong argument type.
    """
    match expression:
        case Name(name):
            return kinds[name]
        case LiteralValue(value):
            return "text" if isinstance(value, str) else "truth" if isinstance(value, bool) else "number"
        case Unary(symbol, operand):
            if kind(operand, kinds) == "text":
                raise ConfigError(f"{symbol!r} before text in {shown(expression)!r}; compare text only with text")
            return "number" if symbol == "-" else "truth"
        case Binary(symbol, left, right):
            texts = [kind(left, kinds), kind(right, kinds)].count("text")
            if texts and (texts == 1 or symbol in _CALCULATING):
                raise ConfigError(f"{symbol!r} with text in {shown(expression)!r}; compare text only with text")
            return "number" if symbol in _ARITHMETIC else "truth"
        case Call():
            return _kind_of_call(expression, kinds)


def _kind_of_call(call: Call, kinds: Mapping[str, Kind]) -> Kind:
    function = FUNCTIONS[call.function]
    given = [kind(argument, kinds) for argument in call.arguments]
    for argument, expected, actual in zip(call.arguments, function.takes, given, strict=True):
        if expected != "any" and (expected == "text") != (actual == "text"):
            raise ConfigError(
                f"{call.function} takes {_IN_WORDS[expected]}, but {shown(argument)!r} in {shown(call)!r} is {_IN_WORDS[actual]}"
            )
    if function.gives is not None:
        return function.gives
    one, other = given[-2:]
    if one != other and "text" in {one, other}:
        raise ConfigError(f"{shown(call)!r} has a text and a number as results; use two of one type")
    return one if one == other else "number"


def check(expression: Expression, kinds: Mapping[str, Kind]) -> None:
    """Check that an expression results in a number or a boolean; a `ConfigError` for text and type errors."""
    if kind(expression, kinds) == "text":
        raise ConfigError(f"{shown(expression)!r} results in text; use a number, or a comparison for 1 and 0")


def kind_of_type(raw: pa.DataType, column: str) -> Kind:
    """Return the type of a raw column in expressions; times and dates are seconds."""
    types = pa.types
    if types.is_dictionary(raw):
        raw = raw.value_type
    if types.is_boolean(raw):
        return "truth"
    if types.is_integer(raw) or types.is_floating(raw) or types.is_null(raw):
        return "number"
    if types.is_timestamp(raw) or types.is_date(raw):
        return "number"
    if types.is_string(raw) or types.is_large_string(raw):
        return "text"
    raise ConfigError(f"an expression reads column {column!r} of type {raw}; use numbers, times or text")
