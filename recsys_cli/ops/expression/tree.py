"""Syntax tree of expressions."""

from __future__ import annotations

from dataclasses import dataclass
from keyword import iskeyword
from typing import Literal
from unicodedata import normalize

Kind = Literal["number", "truth", "text"]
Operator = Literal["+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "and", "or"]


@dataclass(frozen=True)
class Name:
    """Column reference."""

    name: str


@dataclass(frozen=True)
class LiteralValue:
    """Number, text or boolean."""

    value: int | float | str | bool


@dataclass(frozen=True)
class Unary:
    """`-x` or `not x`."""

    operator: Literal["-", "not"]
    operand: Expression


@dataclass(frozen=True)
class Binary:
    """Arithmetic, comparison or logical operation."""

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Call:
    """Function call."""

    function: str
    arguments: tuple[Expression, ...]


Expression = Name | LiteralValue | Unary | Binary | Call


def columns(expression: Expression) -> frozenset[str]:
    """Return the column names in an expression."""
    match expression:
        case Name(name):
            return frozenset({name})
        case Unary(_, operand):
            return columns(operand)
        case Binary(_, left, right):
            return columns(left) | columns(right)
        case Call(_, arguments):
            return frozenset().union(*map(columns, arguments))
        case LiteralValue():
            return frozenset()


def shown(expression: Expression) -> str:
    """Return the source text of an expression, for messages."""
    match expression:
        case Name(name):
            # The parser normalizes other names, such as those with a ligature, to different ones.
            plain = name.isidentifier() and not iskeyword(name) and normalize("NFKC", name) == name
            return name if plain else f"column({name!r})"
        case LiteralValue(value):
            return repr(value)
        case Unary(operator, operand):
            return f"{operator}{' ' * (operator == 'not')}{_inner(operand)}"
        case Binary(operator, left, right):
            return f"{_inner(left)} {operator} {_inner(right)}"
        case Call(function, arguments):
            return f"{function}({', '.join(map(shown, arguments))})"


def _inner(expression: Expression) -> str:
    text = shown(expression)
    return f"({text})" if isinstance(expression, Binary) else text
