"""The functions that an expression may call: what each takes and gives. What they mean stands in LambdaOp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recsys_cli.features.expression.tree import Kind

Takes = Literal["number", "text", "any"]


@dataclass(frozen=True)
class Function:
    """What a function takes and gives.

    Attributes:
        takes: What each argument has to be; a truth value will do for a number.
        gives: What comes out; None where it is what the last two arguments are.
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
"""The years 1 to 9999, in seconds since 1970 UTC: beyond them a date has no parts."""
