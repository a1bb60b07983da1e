"""No interactions with missing values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from recsys_cli.features.spec import Spec
from recsys_cli.ops.fields import Names
from recsys_cli.ops.op import RowFilter


class Dropna(RowFilter):
    """Drop the interactions with a null in one of the columns.

    Nulls: null, NaN and a null list; an empty list or a list with null elements is a value.
    Fitted: nothing; rows are dropped before the split.
    Output: fewer rows; no column changes.
    """

    op: Literal["Dropna"] = "Dropna"
    columns: Names = ()
    """Columns without nulls afterwards; by default all raw columns in use and all computed by earlier ops."""

    @property
    def reads_all(self) -> bool:
        """True without named columns."""
        return not self.columns

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """No column changes."""
        del inputs
        return {}
