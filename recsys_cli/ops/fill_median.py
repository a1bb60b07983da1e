"""Nulls to the median of train."""

from __future__ import annotations

from typing import ClassVar, Literal

from recsys_cli.ops.filling import FillingOp
from recsys_cli.ops.numeric import Columns


class FillMedian(FillingOp):
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
