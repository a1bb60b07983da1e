"""Expressions that users write as text, such as `rating > 3`: parsed to a small tree that each engine compiles.

Python's own parser reads the text; only the few node types below are accepted and nothing is ever evaluated here.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from recsys_cli.errors import ConfigError

Kind = Literal["number", "truth", "text"]
Operator = Literal["+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "and", "or"]

_ARITHMETIC: dict[type[ast.operator], Operator] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISON: dict[type[ast.cmpop], Operator] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_CALCULATING = frozenset({*_ARITHMETIC.values(), "and", "or"})


@dataclass(frozen=True)
class Name:
    """A column."""

    name: str


@dataclass(frozen=True)
class Literally:
    """A number, a text or a truth value."""

    value: int | float | str | bool


@dataclass(frozen=True)
class Unary:
    """`-x` or `not x`."""

    operator: Literal["-", "not"]
    operand: Expression


@dataclass(frozen=True)
class Binary:
    """Arithmetic, comparison or logic between two expressions."""

    operator: Operator
    left: Expression
    right: Expression


Expression = Name | Literally | Unary | Binary


def parse(text: str) -> Expression:
    """Read an expression.

    Raises:
        ConfigError: The text is not one, or uses something outside the grammar; the message points at it.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ConfigError(f"cannot read the expression {text!r}: {error.msg} at column {error.offset}") from error
    return _convert(tree.body, text)


def columns(expression: Expression) -> frozenset[str]:
    """Return the names of the columns that an expression reads."""
    match expression:
        case Name(name):
            return frozenset({name})
        case Unary(_, operand):
            return columns(operand)
        case Binary(_, left, right):
            return columns(left) | columns(right)
        case Literally():
            return frozenset()


def kind(expression: Expression, kinds: Mapping[str, Kind]) -> Kind:
    """Return what an expression gives, so that engines calculate with the same types.

    Args:
        expression: The expression.
        kinds: What each of its columns holds.

    Raises:
        ConfigError: It calculates with text, or compares text with numbers.
    """
    match expression:
        case Name(name):
            return kinds[name]
        case Literally(value):
            return "text" if isinstance(value, str) else "truth" if isinstance(value, bool) else "number"
        case Unary(symbol, operand):
            if kind(operand, kinds) == "text":
                raise ConfigError(
                    f"an expression has {symbol!r} before a text; a text can only be compared with a text"
                )
            return "number" if symbol == "-" else "truth"
        case Binary(symbol, left, right):
            texts = [kind(left, kinds), kind(right, kinds)].count("text")
            if texts and (texts == 1 or symbol in _CALCULATING):
                raise ConfigError(
                    f"an expression has {symbol!r} beside a text; a text can only be compared with a text"
                )
            return "number" if symbol in _ARITHMETIC.values() else "truth"


def check(expression: Expression, kinds: Mapping[str, Kind]) -> None:
    """Check that an expression gives a number or a truth value.

    Raises:
        ConfigError: It gives a text, calculates with one, or compares one with a number.
    """
    if kind(expression, kinds) == "text":
        raise ConfigError("an expression gives a text; it has to give a number, or 1 and 0 by a comparison")


def kind_of_type(raw: pa.DataType, column: str) -> Kind:
    """Return what a raw column holds for an expression.

    Raises:
        ConfigError: An expression cannot calculate with it.
    """
    if pa.types.is_dictionary(raw):
        raw = raw.value_type
    if pa.types.is_boolean(raw):
        return "truth"
    if pa.types.is_integer(raw) or pa.types.is_floating(raw) or pa.types.is_null(raw):
        return "number"
    if pa.types.is_string(raw) or pa.types.is_large_string(raw):
        return "text"
    raise ConfigError(f"an expression reads column {column!r}, which is {raw}; it takes numbers and texts")


def _convert(node: ast.expr, text: str) -> Expression:
    match node:
        case ast.Name(id=name):
            return Name(name)
        case ast.Constant(value=bool() | int() | float() | str() as value) if not _too_large(value):
            return Literally(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Unary("-", _convert(operand, text))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Unary("not", _convert(operand, text))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            return Binary(_ARITHMETIC[type(operator)], _convert(left, text), _convert(right, text))
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISON:
            return Binary(_COMPARISON[type(operator)], _convert(left, text), _convert(right, text))
        case ast.BoolOp(op=operator, values=values):
            return _chain("and" if isinstance(operator, ast.And) else "or", [_convert(v, text) for v in values])
    raise ConfigError(
        f"the expression {text!r} has {ast.unparse(node)!r}, which is not allowed",
        hint="allowed are columns, numbers, texts, + - * /, one comparison at a time, and, or, not",
    )


def _too_large(value: float | str) -> bool:
    return type(value) is int and value >= 2**63


def _chain(operator: Operator, operands: list[Expression]) -> Expression:
    first, *rest = operands
    for operand in rest:
        first = Binary(operator, first, operand)
    return first
