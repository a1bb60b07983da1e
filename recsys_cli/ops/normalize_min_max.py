"""Numbers to the range of train."""

from __future__ import annotations

from typing import ClassVar, Literal

from recsys_cli.ops.numeric import Columns
from recsys_cli.ops.op import NumericOp


class NormalizeMinMax(NumericOp):
    """Scale numbers linearly: the minimum of train to 0, its maximum to 1.

    Fitted: minimum and maximum of each column in train; of joined columns over the train interactions, of lists over all
    elements. Null, NaN and inf are excluded. Numbers outside the range are not clipped. With one distinct value in train,
    or none, every number becomes 0.5.
    Nulls: null and NaN stay null; inf stays inf, except for that 0.5.
    Lists: element by element; a null list becomes an empty one.
    Output: float64 (written as float32), named as the input.
    """

    fitted: ClassVar[bool] = True

    op: Literal["NormalizeMinMax"] = "NormalizeMinMax"
    columns: Columns
    """Numeric columns, each with its own range."""
