"""LogOp: the logarithm, for numbers that span orders of magnitude."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from recsys_cli.features.ops.numeric import Columns
from recsys_cli.features.ops.op import Op, calculated, numbers
from recsys_cli.features.spec import Spec


class LogOp(Op):
    """Replace numbers x by the natural logarithm of 1 + x, so that 0 stays 0.

    The sum is rounded to float64 first. -1 becomes -inf, and what is below has no logarithm and becomes null: let a Clip
    with `min_value: 0` come before where that can be. Nulls stay null (NaN is null), inf stays inf. Lists are computed
    element by element; a null list becomes an empty one. Nothing is fitted.
    Output: float64 (written as float32), named as the input.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["LogOp"] = "LogOp"
    columns: Columns
    """Columns of numbers to take the logarithm of."""

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the logarithms."""
        return calculated(numbers(inputs))
