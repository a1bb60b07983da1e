"""Numbers to zero mean and unit variance."""

from __future__ import annotations

from typing import ClassVar, Literal

from recsys_cli.ops.numeric import Columns
from recsys_cli.ops.op import NumericOp


class Normalize(NumericOp):
    """Standardize numbers by mean and standard deviation of train.

    Fitted: mean and standard deviation (ddof 1) of each column in train; of joined columns over the train interactions, of
    lists over all elements. Null, NaN and inf are excluded. A constant column, or one with a single value, is centered and
    not divided; without values numbers stay unchanged. Beyond about 1e150 squares overflow: the deviation is infinite and
    the output 0.
    Nulls: null and NaN stay null; inf stays inf.
    Lists: element by element; a null list becomes an empty one.
    Output: float64 (written as float32), named as the input.
    """

    fitted: ClassVar[bool] = True
    format: ClassVar[int] = 2

    op: Literal["Normalize"] = "Normalize"
    columns: Columns
    """Numeric columns, each with its own mean and deviation."""
