"""Nulls replaced by a constant, or by the median of train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from recsys_cli.features.spec import Spec
from recsys_cli.ops.numeric import VALUE, WEIGHT, DistinctNames, FillingOp, Number, calculated_type, finite_values
from recsys_cli.ops.op import Tables, numbers
from recsys_cli.packages import np, pa, pl


class FillMissing(FillingOp):
    """Replace nulls by a constant.

    Nulls: null and NaN are replaced; inf stays.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing.
    Output: named as the input; int64 for integers with an integer constant, else float64. Written as float32. With
    `add_binary_cols` also `<name>_filled`, int8: 1 for replaced values, else 0.
    """

    op: Literal["FillMissing"] = "FillMissing"
    columns: DistinctNames
    """Numeric columns."""
    fill_val: Number = 0
    """Constant."""
    add_binary_cols: bool = False
    """Add an indicator `<name>_filled` for each column."""

    def filled(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the filled columns."""
        return {name: spec.computed(self.calculation(spec.element)) for name, spec in numbers(inputs).items()}

    def calculation(self, kind: pa.DataType) -> pa.DataType:
        """Return an integer type for integers and an integer constant."""
        return calculated_type(kind, self.fill_val)

    def constant(self, name: str, state: Tables) -> float:
        """Return `fill_val`."""
        return self.fill_val


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
    columns: DistinctNames
    """Numeric columns, each with its own median."""
    add_binary_cols: bool = False
    """Add an indicator `<name>_filled` for each column."""

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
        """Count each distinct value, as `value` (ascending) and `count`, because medians of parts do not merge."""
        queries = {}
        for column in self.columns:
            counts = finite_values(frame, column, weight).group_by(VALUE).agg(pl.col(WEIGHT).sum().alias("count"))
            queries[column] = counts.sort(VALUE)
        return queries

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Sum the counts by value, in ascending order of values."""
        if len(parts) == 1:
            return parts[0]
        stacked = pl.concat([pl.DataFrame(pl.from_arrow(part)) for part in parts])
        return stacked.group_by(VALUE).agg(pl.col("count").sum()).sort(VALUE).to_arrow()

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Return the median of each column; 0 without values."""
        return {name: pa.table({"median": pa.array([_median(merged[name])], pa.float64())}) for name in self.columns}

    def constant(self, name: str, state: Tables) -> float:
        """Return the median of a column."""
        median: float = state[name].column("median")[0].as_py()
        return median


def _median(counts: pa.Table) -> float:
    if counts.num_rows == 0:
        return 0.0
    values = counts.column(VALUE).to_numpy()
    cumulative = np.cumsum(counts.column("count").to_numpy())
    total = int(cumulative[-1])
    lower, upper = values[np.searchsorted(cumulative, [(total - 1) // 2, total // 2], side="right")]
    # lower + upper could overflow; adding 0.0 turns -0.0 into 0.0.
    return float(lower if lower == upper else lower / 2 + upper / 2) + 0.0
