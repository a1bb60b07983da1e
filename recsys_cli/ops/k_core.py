"""Users and items with enough interactions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from recsys_cli.ops.fields import FrozenDict
from recsys_cli.ops.op import RowFilter


class KCore(RowFilter):
    """Keep the k-core: interactions with a minimum number of remaining interactions for each user and item.

    The largest such set, independent of the order: rare values are dropped repeatedly until all are frequent enough. A
    single column is counted once. The whole input is filtered before the split, held-out interactions included, as in
    the literature. With split.method=files only train is filtered and counted, for comparable test rows.
    Nulls: rows with a null or NaN in a column are dropped; -0.0 equals 0.0.
    Fitted: nothing.
    Output: fewer rows, possibly none; no column changes.
    """

    train_only: ClassVar[bool] = True

    op: Literal["KCore"] = "KCore"
    columns: Annotated[dict[str, Annotated[int, Field(ge=1)]], Field(min_length=1), AfterValidator(FrozenDict)]
    """Minimum count by column, such as `{user: 5, item: 5}`; no lists."""

    @property
    def title(self) -> str:
        """Name in messages."""
        return f"{self.name} {', '.join(f'{name} ≥ {minimum}' for name, minimum in self.columns.items())}"
