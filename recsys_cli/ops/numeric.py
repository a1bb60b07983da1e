"""Constants and calculation types of numeric ops."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat

from recsys_cli.ops.fields import as_tuple


def _once(columns: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise ValueError(f"named twice: {', '.join(twice)}")
    return columns


Columns = Annotated[tuple[str, ...], BeforeValidator(as_tuple), Field(min_length=1), AfterValidator(_once)]
"""Column names, at least one and each once; or a single name."""
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)] | FiniteFloat
"""64-bit integer or finite float."""


def calculated_type(kind: pa.DataType, *constants: float | None) -> pa.DataType:
    """Return the type of a calculation with constants, None ignored: that of values, or of list elements.

    int64 for integers and booleans, uint64 for uint64; float64 for other types, or if a constant does not fit.
    """
    given = [value for value in constants if value is not None]
    whole = all(isinstance(value, int) or value.is_integer() for value in given)
    if pa.types.is_uint64(kind) and whole and all(0 <= value < 2**64 for value in given):
        return pa.uint64()
    signed = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
    if (signed or pa.types.is_boolean(kind)) and whole and all(-(2**63) <= value < 2**63 for value in given):
        return pa.int64()
    return pa.float64()
