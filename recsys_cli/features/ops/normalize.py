"""Normalize: numbers to mean 0 and standard deviation 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from recsys_cli.features.ops.numeric import Columns
from recsys_cli.features.ops.op import Op, calculated, numbers
from recsys_cli.features.spec import Spec


class Normalize(Op):
    """Subtract the mean of train from numbers and divide by the standard deviation of train.

    Fitted: mean and standard deviation (with one degree of freedom less than values) of each column in the train split,
    of a joined column over the train interactions, of lists over all their elements. Null and NaN are no values; inf is
    not learnt from. A column that is constant in train, or has one value there, is not divided: train becomes 0, another
    value its difference from the constant. Without any value in train numbers stay as they are. Numbers beyond about
    1e150, whose squares are not finite, make the deviation infinite and each of the column's numbers 0.
    Nulls stay null, inf stays inf. Lists are computed element by element; a null list becomes an empty one.
    Output: float64 (written as float32), named as the input.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True
    format: ClassVar[int] = 2

    op: Literal["Normalize"] = "Normalize"
    columns: Columns
    """Columns of numbers, each with its own mean and deviation."""

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the normalized columns."""
        return calculated(numbers(inputs))
