"""One interaction per distinct key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recsys_cli.features.columns import POSITION
from recsys_cli.ops.buckets import Positions, group, partition
from recsys_cli.ops.flow import Flow, Masked, OpContext
from recsys_cli.ops.op import Names, RowFilter
from recsys_cli.packages import np, pa


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

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Keep one row of each key, bucket by bucket, with a mask of one byte per row."""
        rows = context.materialize(rows)
        buckets = partition(rows, self.columns, self.order_by, context)
        keep = np.zeros(rows.most or 0, dtype=bool)
        for positions in buckets.map(self._kept):
            keep[positions] = True
        buckets.delete()
        return Masked(rows, keep)

    def _kept(self, rows: pa.Table) -> Positions:
        groups = group(rows, self.columns, self.order_by)
        if self.keep == "first":
            kept = groups.starts
        elif self.keep == "last":
            kept = groups.ends - 1
        else:
            kept = groups.starts[groups.ends - groups.starts == 1]
        positions: Positions = rows.column(POSITION).to_numpy()[groups.order[kept]]
        return positions
