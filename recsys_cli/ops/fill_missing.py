"""Nulls to a constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from recsys_cli.features.spec import Spec
from recsys_cli.ops.numeric import DistinctNames, FillingOp, Number, calculated_type
from recsys_cli.ops.op import Tables, numbers


class FillMissing(FillingOp):
    """Replace nulls by a constant.

    Nulls: null and NaN are replaced; inf stays.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing.
    Output: named as the input; int64 for integers with an integer constant, else float64. Written as float32. With
    `add_binary_cols` also `<name>_filled`, int8: 1 for replaced values, else 0.
    """

    op: Literal["FillMissing"] = "FillMissing"
    columns: DistinctNames
    """Numeric columns."""
    fill_val: Number = 0
    """Constant."""
    add_binary_cols: bool = False
    """Add an indicator `<name>_filled` for each column."""

    def filled(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the filled columns."""
        return {name: spec.computed(self.calculation(spec.element)) for name, spec in numbers(inputs).items()}

    def calculation(self, kind: pa.DataType) -> pa.DataType:
        """Return an integer type for integers and an integer constant."""
        return calculated_type(kind, self.fill_val)

    def constant(self, name: str, state: Tables) -> float:
        """Return `fill_val`."""
        return self.fill_val
