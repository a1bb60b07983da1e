"""Natural logarithm of 1 + x."""

from __future__ import annotations

from typing import Literal

from recsys_cli.ops.numeric import Columns
from recsys_cli.ops.op import NumericOp


class LogOp(NumericOp):
    """Replace x by log(1 + x), the natural logarithm, so that 0 stays 0.

    1 + x is rounded to float64 first. -1 becomes -inf; smaller numbers become null: put a Clip with `min_value: 0` before.
    Nulls: null and NaN stay null; inf stays inf.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing.
    Output: float64 (written as float32), named as the input.
    """

    op: Literal["LogOp"] = "LogOp"
    columns: Columns
    """Numeric columns."""
