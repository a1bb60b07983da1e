"""Difference to an earlier interaction of the same user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import BeforeValidator, Field, field_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.spec import Spec
from recsys_cli.ops.fields import Names, as_tuple
from recsys_cli.ops.op import Op, Phase, numbers, scalars


class DifferenceLag(Op):
    """Compute the difference to an earlier row of the same group, such as the time since the user's last interaction.

    Rows of a group, equal in all columns of `by`, follow `order_by` (nulls last), then the order of the input. The
    difference is the value minus the value `shift` rows before; a negative shift reads future rows and raises a warning.
    Computed on the whole input before the split, so that held-out rows see earlier rows; with split.method=files, on each
    split on its own.
    Nulls: null without such a row, for a null or NaN value on either side, and for a null or NaN in `by`.
    Lists: refused.
    Fitted: nothing.
    Output: `<column>_difference_lag_<shift>`, float64, written as float32 with NaN for null. Integers are subtracted
    exactly; dates and timestamps give seconds.
    """

    phase: ClassVar[Phase] = "rows"

    op: Literal["DifferenceLag"] = "DifferenceLag"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to subtract: numbers, dates or timestamps."""
    by: Annotated[Names, Field(min_length=1)]
    """Group columns, such as the user (NVTabular: `partition_cols`)."""
    order_by: Names = ()
    """Columns that order a group, most important first, such as the timestamp."""
    shift: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = Field((1,), min_length=1)
    """Number of rows back; one or several, each with its own output column."""

    @field_validator("shift")
    @classmethod
    def _is_shift(cls, shifts: tuple[int, ...]) -> tuple[int, ...]:
        if 0 in shifts:
            raise ValueError("a shift of 0 would subtract each row from itself")
        return shifts

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns, the group and its order."""
        return tuple(dict.fromkeys((*self.columns, *self.by, *self.order_by)))

    def output(self, column: str, shift: int) -> str:
        """Return the name of an output column."""
        return f"{column}_difference_lag_{shift}"

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the differences."""
        scalars(inputs)
        for name in self.columns:
            spec = inputs[name]
            if spec.categorical or not (pa.types.is_timestamp(spec.element) or pa.types.is_date(spec.element)):
                numbers({name: spec})
        made = [self.output(name, shift) for name in self.columns for shift in self.shift]
        if len(set(made)) < len(made):
            raise ConfigError("a column or a shift is repeated; name each once")
        return {name: Spec(pa.float64()) for name in made}
