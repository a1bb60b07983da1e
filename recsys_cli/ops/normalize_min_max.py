"""Numbers to the range of train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from recsys_cli.ops.numeric import VALUE, DistinctNames, NumericOp, finite_values
from recsys_cli.ops.op import Tables
from recsys_cli.ops.values import Array
from recsys_cli.packages import pc, pl


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
    columns: DistinctNames
    """Numeric columns, each with its own range."""

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
        """Compute the range of each column, in one row; lists by element."""
        bounds = (pl.col(VALUE).min().alias("low"), pl.col(VALUE).max().alias("high"))
        return {column: finite_values(frame, column, weight).select(bounds) for column in self.columns}

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Return the range over all parts; null if all are null."""
        return merged_range(parts)

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Return the range of each column."""
        return dict(merged)

    def on_numpy(self, name: str, kind: pa.DataType, state: Tables) -> Callable[[Array], Array]:
        """Scale by the range of train; NaN passes through."""
        low, high = range_of(state[name])
        if low == high:
            return lambda data: np.where(np.isnan(data), np.nan, 0.5)
        return lambda data: (data - low) / (high - low)

    def on_polars(self, values: pl.Expr, name: str, kind: pa.DataType, state: Tables) -> pl.Expr:
        """Scale by the range of train; NaN passes through."""
        low, high = range_of(state[name])
        if low == high:
            return pl.when(values.is_not_nan()).then(0.5)
        return (values - low) / (high - low)


def merged_range(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the range `low` to `high` over all parts, integer or float; null if all are null."""
    stacked = pa.concat_tables(parts)
    low, high = pc.min(stacked.column("low")), pc.max(stacked.column("high"))
    return pa.table({
        "low": pa.array([low.as_py()], stacked.schema.field("low").type),
        "high": pa.array([high.as_py()], stacked.schema.field("high").type),
    })  # fmt: skip


def range_of(state: pa.Table) -> tuple[Any, Any]:
    """Return both ends of a range; None without values."""
    return state.column("low")[0].as_py(), state.column("high")[0].as_py()
