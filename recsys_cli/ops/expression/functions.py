"""Signatures of functions; LambdaOp documents their semantics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recsys_cli.ops.expression.tree import Kind

Takes = Literal["number", "text", "any"]


@dataclass(frozen=True)
class Function:
    """Signature of a function; booleans count as numbers.

    Attributes:
        gives: Result type; None for the type of the last two arguments.
    """

    takes: tuple[Takes, ...]
    gives: Kind | None


_NUMBER: tuple[Takes, ...] = ("number",)
FUNCTIONS: dict[str, Function] = {
    "is_null": Function(("any",), "truth"),
    "if": Function(("number", "any", "any"), None),
    "log": Function(_NUMBER, "number"),
    "round": Function(_NUMBER, "number"),
    "min": Function(_NUMBER * 2, "number"),
    "max": Function(_NUMBER * 2, "number"),
    "clip": Function(_NUMBER * 3, "number"),
    "year": Function(_NUMBER, "number"),
    "month": Function(_NUMBER, "number"),
    "day": Function(_NUMBER, "number"),
    "weekday": Function(_NUMBER, "number"),
    "hour": Function(_NUMBER, "number"),
    "minute": Function(_NUMBER, "number"),
    "length": Function(("text",), "number"),
    "lower": Function(("text",), "text"),
}

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Years 1 to 9999, the range of calendar functions, in seconds since 1970 UTC."""
