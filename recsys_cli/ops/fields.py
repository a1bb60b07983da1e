"""Field types of several ops."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator

from recsys_cli.errors import ConfigError
from recsys_cli.ops import expression as expressions

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """Read-only mapping, hashable as a field of a frozen op."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def as_tuple(value: Any) -> Any:
    """Return a single text or number as a tuple."""
    return (value,) if isinstance(value, str | int) else value


Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
"""Column names, or a single one."""


def _readable(text: str) -> str:
    try:
        expressions.parse(text)
    except ConfigError as error:
        raise ValueError(error.message) from error
    return text


ExpressionText = Annotated[str, AfterValidator(_readable)]
"""Expression as text, parsed by a small grammar, never run as Python."""
