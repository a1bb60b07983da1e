"""LogOp: natural logarithm of 1 + x."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from recsys_cli.features.ops.numeric import Columns
from recsys_cli.features.ops.op import Op, calculated, numbers
from recsys_cli.features.spec import Spec


class LogOp(Op):
    """Replace x by log(1 + x), the natural logarithm, so that 0 stays 0.

    1 + x is rounded to float64 first. -1 becomes -inf; smaller numbers become null: put a Clip with `min_value: 0` before.
    Nulls: null and NaN stay null; inf stays inf.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing.
    Output: float64 (written as float32), named as the input.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["LogOp"] = "LogOp"
    columns: Columns
    """Numeric columns."""

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the logarithms."""
        return calculated(numbers(inputs))
