"""Nulls to a constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from recsys_cli.features.spec import Spec
from recsys_cli.ops.filling import FillingOp
from recsys_cli.ops.numeric import Columns, Number, calculated_type
from recsys_cli.ops.op import numbers


class FillMissing(FillingOp):
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

    def filled(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the filled columns."""
        return {
            name: spec.computed(calculated_type(spec.element, self.fill_val)) for name, spec in numbers(inputs).items()
        }
