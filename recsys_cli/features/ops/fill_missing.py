"""FillMissing: a constant where there is no value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from recsys_cli.features.ops.filling import indicators, names_differ
from recsys_cli.features.ops.numeric import Columns, Number, calculated_type
from recsys_cli.features.ops.op import Op, numbers
from recsys_cli.features.spec import Spec


class FillMissing(Op):
    """Put a constant where a number is null.

    NaN is null; inf is a value and stays. Lists are filled element by element; a null list becomes an empty one.
    Nothing is fitted. A column without any value becomes all constant.
    Output: named as the input; whole numbers stay whole (int64) if the constant is whole, others are float64. Written
    as float32. With `add_binary_cols` also `<name>_filled`, int8: 1 where the constant was put, else 0.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["FillMissing"] = "FillMissing"
    columns: Columns
    """Columns of numbers to fill."""
    fill_val: Number = 0
    """The constant."""
    add_binary_cols: bool = False
    """Whether to add `<name>_filled` for each column, which is 1 where it was filled."""

    _names_differ = model_validator(mode="after")(names_differ)

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the filled columns and the indicators."""
        filled: dict[str, Spec | None] = {
            name: Spec(spec.holding(calculated_type(spec.element, self.fill_val)), tags=spec.tags, lengths=spec.lengths)
            for name, spec in numbers(inputs).items()
        }
        return filled | indicators(inputs) if self.add_binary_cols else filled
