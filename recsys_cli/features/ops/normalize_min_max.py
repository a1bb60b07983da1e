"""NormalizeMinMax: numbers of train to the range from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from recsys_cli.features.ops.numeric import Columns
from recsys_cli.features.ops.op import Op, calculated, numbers
from recsys_cli.features.spec import Spec


class NormalizeMinMax(Op):
    """Map the smallest number of train to 0 and the largest to 1, and others in proportion.

    Fitted: smallest and largest value of each column in the train split, of a joined column among those that a train
    interaction has, of lists among all their elements. Null and NaN are no values; inf is not learnt from. Numbers
    outside train's range become less than 0 or more than 1; they are not clipped.
    Where train has one value only, or none, every number becomes 0.5, whatever it is.
    Nulls stay null; inf stays inf, but for that 0.5. Lists are computed element by element; a null list becomes an empty
    one. Output: float64 (written as float32), named as the input.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True

    op: Literal["NormalizeMinMax"] = "NormalizeMinMax"
    columns: Columns
    """Columns of numbers, each with its own range."""

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns in proportion."""
        return calculated(numbers(inputs))
