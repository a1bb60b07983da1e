"""DifferenceLag: how a value has changed since an earlier interaction of the same user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import BeforeValidator, Field, field_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops.fields import Names, several
from recsys_cli.features.ops.op import Op, Phase, numbers, scalars
from recsys_cli.features.spec import Spec


class DifferenceLag(Op):
    """Compute how much a value differs from that of an earlier row of its group, such as the time since a user's last one.

    The rows of a group, equal in all columns of `by`, are ordered by `order_by` (nulls come last) and, where that is
    equal or not given, by the order of the input. A row's difference is its value less that of the row `shift` positions
    before; a negative shift looks at later rows, which are the future, and is warned of. It looks at the whole input,
    before the split: a user may span files, and held-out rows know what came before them. With split.method=files it
    looks at each given set of files on its own.
    Null where there is no such row (the first row of each group, and all of a group of one row), where one of the two
    values is null or NaN, and where a column of `by` is null or NaN: rows without a user have no earlier row. A constant
    column gives 0. An empty input gives an empty column. Lists cannot be subtracted. Whole numbers are subtracted
    exactly, dates and timestamps give seconds. Nothing is fitted.
    Output: `<column>_difference_lag_<shift>`, float64, written as float32; null is NaN there.
    """

    phase: ClassVar[Phase] = "rows"

    op: Literal["DifferenceLag"] = "DifferenceLag"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to subtract: numbers, dates or timestamps."""
    by: Annotated[Names, Field(min_length=1)]
    """Columns that make a group, such as the user (NVTabular: `partition_cols`)."""
    order_by: Names = ()
    """Columns by which a group is ordered, most important first, such as the timestamp."""
    shift: Annotated[tuple[int, ...], BeforeValidator(several)] = Field((1,), min_length=1)
    """How many rows back, one number or several; each makes a column."""

    @field_validator("shift")
    @classmethod
    def _is_shift(cls, shifts: tuple[int, ...]) -> tuple[int, ...]:
        if 0 in shifts:
            raise ValueError("a shift of 0 would subtract each row from itself")
        return shifts

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns to subtract, the group and its order."""
        return tuple(dict.fromkeys((*self.columns, *self.by, *self.order_by)))

    def output(self, column: str, shift: int) -> str:
        """Return the name of a difference."""
        return f"{column}_difference_lag_{shift}"

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the differences.

        Raises:
            ConfigError: A column cannot be subtracted, or a group be made or ordered by it.
        """
        scalars(inputs)
        for name in self.columns:
            spec = inputs[name]
            if spec.categorical or not (pa.types.is_timestamp(spec.element) or pa.types.is_date(spec.element)):
                numbers({name: spec})
        made = [self.output(name, shift) for name in self.columns for shift in self.shift]
        if len(set(made)) < len(made):
            raise ConfigError("a column or a shift stands twice")
        return {name: Spec(pa.float64()) for name in made}
