"""Nulls to the median of train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from recsys_cli.features.ops.filling import indicators, names_differ
from recsys_cli.features.ops.numeric import Columns
from recsys_cli.features.ops.op import NumericOp
from recsys_cli.features.spec import Spec


class FillMedian(NumericOp):
    """Replace nulls by the median of train.

    Fitted: the exact median of each column in train (the mean of the middle two for an even number); of joined columns over
    the train interactions, of lists over all elements. Null, NaN and inf are excluded. Without values the median is 0.
    Fitting takes 16 bytes of memory per distinct value.
    Nulls: null and NaN are replaced; inf stays.
    Lists: element by element; a null list becomes an empty one.
    Output: float64 (written as float32), named as the input. With `add_binary_cols` also `<name>_filled`, int8: 1 for
    replaced values, else 0.
    """

    fitted: ClassVar[bool] = True

    op: Literal["FillMedian"] = "FillMedian"
    columns: Columns
    """Numeric columns, each with its own median."""
    add_binary_cols: bool = False
    """Add an indicator `<name>_filled` for each column."""

    _names_differ = model_validator(mode="after")(names_differ)

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the filled columns and the indicators."""
        filled = super().outputs(inputs)
        return filled | indicators(inputs) if self.add_binary_cols else filled
