"""Clip: values no lower and no higher than bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from recsys_cli.features.ops.numeric import Columns, Number, calculated_type
from recsys_cli.features.ops.op import Op, numbers
from recsys_cli.features.spec import Spec


class Clip(Op):
    """Replace numbers below a bound by the bound, and those above the other by that.

    Nulls stay null (NaN is null); inf becomes the upper bound where there is one, -inf the lower. Lists are clipped
    element by element; a null list becomes an empty one. Nothing is fitted.
    Output: named as the input; whole numbers stay whole (int64) if the bounds are whole, others are float64. Written
    as float32.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["Clip"] = "Clip"
    columns: Columns
    """Columns of numbers to clip."""
    min_value: Number | None = None
    """The lowest value that stays; without it there is no lower bound."""
    max_value: Number | None = None
    """The highest value that stays; without it there is no upper bound."""

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        if self.min_value is None and self.max_value is None:
            raise ValueError("Clip needs min_value, max_value or both")
        if self.min_value is not None and self.max_value is not None and self.min_value > self.max_value:
            raise ValueError(f"min_value {self.min_value} is above max_value {self.max_value}")
        return self

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the clipped columns."""
        return {
            name: Spec(
                spec.holding(calculated_type(spec.element, self.min_value, self.max_value)),
                tags=spec.tags,
                lengths=spec.lengths,
            )
            for name, spec in numbers(inputs).items()
        }
