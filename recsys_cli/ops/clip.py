"""Numbers within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import model_validator

from recsys_cli.features.spec import Spec
from recsys_cli.ops.numeric import Columns, Number, calculated_type
from recsys_cli.ops.op import NumericOp, numbers


class Clip(NumericOp):
    """Limit numbers to a lower bound, an upper bound or both.

    Nulls: null and NaN stay null; inf and -inf become the bound.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing.
    Output: named as the input; int64 for integers with integer bounds, else float64. Written as float32.
    """

    op: Literal["Clip"] = "Clip"
    columns: Columns
    """Numeric columns."""
    min_value: Number | None = None
    """Lower bound; null for none."""
    max_value: Number | None = None
    """Upper bound; null for none."""

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        if self.min_value is None and self.max_value is None:
            raise ValueError("Clip needs min_value, max_value or both")
        if self.min_value is not None and self.max_value is not None and self.min_value > self.max_value:
            raise ValueError(f"min_value {self.min_value} is above max_value {self.max_value}")
        return self

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the clipped columns."""
        return {
            name: spec.computed(calculated_type(spec.element, self.min_value, self.max_value))
            for name, spec in numbers(inputs).items()
        }
