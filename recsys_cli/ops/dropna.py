"""No interactions with missing values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.spec import Spec
from recsys_cli.ops.flow import Flow, Mask, OpContext, filter_rows
from recsys_cli.ops.op import Names, RowFilter
from recsys_cli.packages import np, pa, pc


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
        return {}

    @property
    def row_wise(self) -> bool:
        """True."""
        return True

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Keep the rows without a missing value."""
        return filter_rows(rows, partial(_keep, self.columns), context.keeps)


def _keep(names: tuple[str, ...], batch: pa.Table) -> Mask:
    keep = np.ones(batch.num_rows, dtype=bool)
    for name in names or [name for name in batch.column_names if name != ROW_NUMBER]:
        values = batch.column(name)
        if values.null_count or pa.types.is_floating(values.type):
            keep &= ~pc.is_null(values, nan_is_null=pa.types.is_floating(values.type)).to_numpy()
    return keep
