"""What ops on numbers share: constants that a config may give, and the type that values are calculated with."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat

from recsys_cli.features.ops.fields import several


def _once(columns: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise ValueError(f"named twice: {', '.join(twice)}")
    return columns


Columns = Annotated[tuple[str, ...], BeforeValidator(several), Field(min_length=1), AfterValidator(_once)]
"""Names of columns, at least one and each once; or one name."""
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)] | FiniteFloat
"""A whole number of 64 bits, or a real one; neither infinite nor NaN."""


def calculated_type(kind: pa.DataType, *constants: float | None) -> pa.DataType:
    """Return the type in which values meet constants without losing digits: whole numbers stay whole where they can.

    Args:
        kind: Type of the values (of a list's elements).
        constants: What they are compared with or replaced by; None is none.

    Returns:
        int64 for whole numbers and truth values, uint64 for those; float64 for all else, and where a constant does not fit.
    """
    given = [value for value in constants if value is not None]
    whole = all(isinstance(value, int) or value.is_integer() for value in given)
    if pa.types.is_uint64(kind) and whole and all(0 <= value < 2**64 for value in given):
        return pa.uint64()
    signed = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
    if (signed or pa.types.is_boolean(kind)) and whole and all(-(2**63) <= value < 2**63 for value in given):
        return pa.int64()
    return pa.float64()
