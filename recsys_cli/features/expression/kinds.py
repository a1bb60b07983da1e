"""What an expression gives, so that engines calculate with the same types and a mistake is named before any row is read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.features.expression.functions import FUNCTIONS
from recsys_cli.features.expression.tree import Binary, Call, Expression, Kind, LiteralValue, Name, Unary, shown

_ARITHMETIC = frozenset({"+", "-", "*", "/"})
_CALCULATING = _ARITHMETIC | {"and", "or"}
_IN_WORDS = {"number": "a number", "truth": "a truth value", "text": "a text"}


def kind(expression: Expression, kinds: Mapping[str, Kind]) -> Kind:
    """Return what an expression gives.

    Args:
        expression: The expression.
        kinds: What each of its columns holds.

    Raises:
        ConfigError: It calculates with text, compares text with numbers, or gives a function what it does not take.
    """
    match expression:
        case Name(name):
            return kinds[name]
        case LiteralValue(value):
            return "text" if isinstance(value, str) else "truth" if isinstance(value, bool) else "number"
        case Unary(symbol, operand):
            if kind(operand, kinds) == "text":
                raise ConfigError(
                    f"{symbol!r} before a text in {shown(expression)!r}; a text can only be compared with a text"
                )
            return "number" if symbol == "-" else "truth"
        case Binary(symbol, left, right):
            texts = [kind(left, kinds), kind(right, kinds)].count("text")
            if texts and (texts == 1 or symbol in _CALCULATING):
                raise ConfigError(
                    f"{symbol!r} beside a text in {shown(expression)!r}; a text can only be compared with a text"
                )
            return "number" if symbol in _ARITHMETIC else "truth"
        case Call():
            return _kind_of_call(expression, kinds)


def _kind_of_call(call: Call, kinds: Mapping[str, Kind]) -> Kind:
    function = FUNCTIONS[call.function]
    given = [kind(argument, kinds) for argument in call.arguments]
    for argument, wanted, found in zip(call.arguments, function.takes, given, strict=True):
        if wanted != "any" and (wanted == "text") != (found == "text"):
            raise ConfigError(
                f"{call.function} takes {_IN_WORDS[wanted]}, and {shown(argument)!r} in {shown(call)!r} is {_IN_WORDS[found]}"
            )
    if function.gives is not None:
        return function.gives
    one, other = given[-2:]
    if one != other and "text" in {one, other}:
        raise ConfigError(f"{shown(call)!r} gives a text or a number; both have to be of one kind")
    return one if one == other else "number"


def check(expression: Expression, kinds: Mapping[str, Kind]) -> None:
    """Check that an expression gives a number or a truth value.

    Raises:
        ConfigError: It gives a text, or is wrong inside (see `kind`).
    """
    if kind(expression, kinds) == "text":
        raise ConfigError(
            f"{shown(expression)!r} gives a text; an expression has to give a number, or 1 and 0 by a comparison"
        )


def kind_of_type(raw: pa.DataType, column: str) -> Kind:
    """Return what a raw column holds for an expression: a time or a date is the number of its seconds.

    Raises:
        ConfigError: An expression cannot calculate with it.
    """
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
    raise ConfigError(f"an expression reads column {column!r}, which is {raw}; it takes numbers, times and texts")
