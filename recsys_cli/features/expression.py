"""Expressions that users write as text, such as `rating > 3`: parsed to a small tree that each engine compiles.

Python's own parser reads the text; only the few node types below are accepted and nothing is ever evaluated here.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from recsys_cli.errors import ConfigError

Operator = Literal["+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "and", "or"]

_ARITHMETIC: dict[type[ast.operator], Operator] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISON: dict[type[ast.cmpop], Operator] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


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


def _convert(node: ast.expr, text: str) -> Expression:
    match node:
        case ast.Name(id=name):
            return Name(name)
        case ast.Constant(value=bool() | int() | float() | str() as value):
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


def _chain(operator: Operator, operands: list[Expression]) -> Expression:
    first, *rest = operands
    for operand in rest:
        first = Binary(operator, first, operand)
    return first
