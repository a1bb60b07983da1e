"""Nulls to a constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import model_validator

from recsys_cli.features.ops.filling import indicators, names_differ
from recsys_cli.features.ops.numeric import Columns, Number, calculated_type
from recsys_cli.features.ops.op import NumericOp, numbers
from recsys_cli.features.spec import Spec


class FillMissing(NumericOp):
    """Replace nulls by a constant.

    Nulls: null and NaN are replaced; inf stays.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing.
    Output: named as the input; int64 for integers with an integer constant, else float64. Written as float32. With
    `add_binary_cols` also `<name>_filled`, int8: 1 for replaced values, else 0.
    """

    op: Literal["FillMissing"] = "FillMissing"
    columns: Columns
    """Numeric columns."""
    fill_val: Number = 0
    """Constant."""
    add_binary_cols: bool = False
    """Add an indicator `<name>_filled` for each column."""

    _names_differ = model_validator(mode="after")(names_differ)

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the filled columns and the indicators."""
        filled: dict[str, Spec | None] = {
            name: spec.computed(calculated_type(spec.element, self.fill_val)) for name, spec in numbers(inputs).items()
        }
        return filled | indicators(inputs) if self.add_binary_cols else filled
