"""One interaction per distinct key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recsys_cli.ops.fields import Names
from recsys_cli.ops.op import RowFilter


class Deduplicate(RowFilter):
    """Keep one of the interactions with equal values in some columns, such as user and item.

    First and last follow `order_by` (nulls last), then the order of the input, so ties are resolved. The whole input is
    deduplicated before the split; with split.method=files, each split on its own.
    Nulls: null equals null; NaN is null; -0.0 equals 0.0.
    Fitted: nothing.
    Output: fewer rows; no column changes.
    """

    op: Literal["Deduplicate"] = "Deduplicate"
    columns: Annotated[Names, Field(min_length=1)]
    """Key columns; single values, no lists."""
    keep: Literal["first", "last", "none"] = "first"
    """Interaction to keep; `none` drops all with a duplicate."""
    order_by: Names = ()
    """Columns that order duplicates, most important first, such as the timestamp."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Key columns and order."""
        return tuple(dict.fromkeys((*self.columns, *self.order_by)))
