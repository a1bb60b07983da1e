"""Types of fields that several ops have: names that may be given as one text, and mappings that a frozen op can hold."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator

from recsys_cli.errors import ConfigError
from recsys_cli.features import expression as expressions

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """A mapping that nobody changes, so that an op that holds it can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def several(value: Any) -> Any:
    """Return one text or number as a tuple of one, so that a config need not write brackets around it."""
    return (value,) if isinstance(value, str | int) else value


Names = Annotated[tuple[str, ...], BeforeValidator(several)]
"""Names of columns, or one name."""


def _readable(text: str) -> str:
    try:
        expressions.parse(text)
    except ConfigError as error:
        raise ValueError(error.message) from error
    return text


ExpressionText = Annotated[str, AfterValidator(_readable)]
"""An expression as text; it is parsed to a small grammar, never run as Python."""
