"""FillMedian: the median of train where there is no value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from recsys_cli.features.ops.filling import indicators, names_differ
from recsys_cli.features.ops.numeric import Columns
from recsys_cli.features.ops.op import Op, calculated, numbers
from recsys_cli.features.spec import Spec


class FillMedian(Op):
    """Put the median of train where a number is null.

    Fitted: the exact median of each column's values in the train split (the mean of the two in the middle where their
    number is even), of a joined column over the train interactions, of lists over all their elements. Null and NaN are
    no values; inf is not learnt from, but stays where it is. Without any value in train the median is 0. While it
    learns, each distinct value of a column takes 16 bytes of memory.
    Lists are filled element by element; a null list becomes an empty one.
    Output: float64 (written as float32), named as the input. With `add_binary_cols` also `<name>_filled`, int8: 1 where
    the median was put, else 0.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True

    op: Literal["FillMedian"] = "FillMedian"
    columns: Columns
    """Columns of numbers to fill, each with its own median."""
    add_binary_cols: bool = False
    """Whether to add `<name>_filled` for each column, which is 1 where it was filled."""

    _names_differ = model_validator(mode="after")(names_differ)

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the filled columns and the indicators."""
        filled = calculated(numbers(inputs))
        return filled | indicators(inputs) if self.add_binary_cols else filled
