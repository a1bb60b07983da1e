"""Numbers of mean 0 and standard deviation 1, or between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from recsys_cli.ops.numeric import VALUE, WEIGHT, DistinctNames, NumericOp, finite_values
from recsys_cli.ops.op import Tables
from recsys_cli.ops.values import Array
from recsys_cli.packages import np, pa, pc, pl

BASE = float(1 << 30)
"""Base of the digits of sums."""


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
    columns: DistinctNames
    """Numeric columns, each with its own mean and deviation."""

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
        """Compute count, mean, sum of squared deviations (`squares`) and range per column; lists by element.

        The moments of a part are integer sums, independent of row order, and equal for weights and repeated rows. Each
        value is scaled to its range and split into two digits of base 2^30; the error is below 2^-60 of the range.
        """
        return {column: _moments(finite_values(frame, column, weight)) for column in self.columns}

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Concatenate the moments; `finalize` adds them, independent of merge groups."""
        return pa.concat_tables(parts)

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Return mean and deviation of each column; deviation 0 for a constant, both 0 without values."""
        state = {}
        for column in self.columns:
            mean, std = _mean_and_deviation(merged[column])
            state[column] = pa.table({"mean": pa.array([mean], pa.float64()), "std": pa.array([std], pa.float64())})
        return state

    def on_numpy(self, name: str, kind: pa.DataType, state: Tables) -> Callable[[Array], Array]:
        """Standardize to mean 0 and standard deviation 1; NaN passes through."""
        mean, std = _fitted(name, state)
        return lambda data: (data - mean) / std if std > 0 else data - mean

    def on_polars(self, values: pl.Expr, name: str, kind: pa.DataType, state: Tables) -> pl.Expr:
        """Standardize to mean 0 and standard deviation 1; NaN passes through."""
        mean, std = _fitted(name, state)
        return (values - mean) / std if std > 0 else values - mean

    def on_nvtabular(self, library: Any, columns: Mapping[str, str], state: Tables) -> Any:
        """Return a Normalize with the moments of all engines: its own depend on the row order."""
        op = library.ops.Normalize()
        op.means = {position: _fitted(name, state)[0] for position, name in columns.items()}
        op.stds = {position: _fitted(name, state)[1] for position, name in columns.items()}
        return op


def _fitted(name: str, state: Tables) -> tuple[float, float]:
    return state[name].column("mean")[0].as_py(), state[name].column("std")[0].as_py()


def _moments(values: pl.LazyFrame) -> pl.LazyFrame:
    """Compute weighted moments in two passes, so that a large mean does not cost precision of the deviation."""
    value = pl.col(VALUE)
    low, high = value.min(), value.max()
    count = pl.col(WEIGHT).cast(pl.Int64).sum()
    mean = low + (high - low) * (_total((value - low) * (1.0 / (high - low))) * (1.0 / count))
    centered = values.with_columns((value - mean).alias("deviation"), mean.alias("mean"))
    deviation = pl.col("deviation")
    widest = deviation.abs().max()
    share = deviation * (1.0 / widest)
    return centered.select(
        count.alias("count"), pl.col("mean").first().alias("mean"), (widest * widest * _total(share * share)).alias("squares"),
        low.alias("low"), high.alias("high"),
    )  # fmt: skip


def _total(shares: pl.Expr) -> pl.Expr:
    """Return the order-independent sum of numbers in [-1, 1]; NaN counts as 0."""
    scaled = shares.fill_nan(0.0) * BASE
    first = scaled.floor()
    second = ((scaled - first) * BASE).floor()
    times = pl.col(WEIGHT).cast(pl.Int64)
    sums = ((digit.cast(pl.Int64) * times).sum().cast(pl.Float64) for digit in (first, second))
    return (next(sums) + next(sums) / BASE) / BASE


def _mean_and_deviation(parts: pa.Table) -> tuple[float, float]:
    """Combine moments pairwise (Chan, Golub and LeVeque, 1979), numerically stable unlike sums of squares."""
    count, mean, squares = 0, 0.0, 0.0
    low, high = math.inf, -math.inf
    for part in parts.to_pylist():
        if not part["count"]:
            continue
        total = count + part["count"]
        delta = part["mean"] - mean
        mean += delta * (part["count"] / total)
        squares += part["squares"] + delta * delta * (count * (part["count"] / total))
        count = total
        low, high = min(low, part["low"]), max(high, part["high"])
    if low >= high:
        return (low, 0.0) if count else (0.0, 0.0)  # the mean of a constant has a rounding error
    if not math.isfinite(mean) or not math.isfinite(squares):
        return 0.0, math.inf
    return mean, math.sqrt(squares / (count - 1))


class RangeOp(NumericOp):
    """An op on the range of each column in train: `low` to `high`, integer or float; null without values."""

    fitted: ClassVar[bool] = True

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Return the range over all parts; null if all are null."""
        stacked = pa.concat_tables(parts)
        low, high = pc.min(stacked.column("low")), pc.max(stacked.column("high"))
        return pa.table({
            "low": pa.array([low.as_py()], stacked.schema.field("low").type),
            "high": pa.array([high.as_py()], stacked.schema.field("high").type),
        })  # fmt: skip

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Return the range of each column."""
        return dict(merged)


class NormalizeMinMax(RangeOp):
    """Scale numbers linearly: the minimum of train to 0, its maximum to 1.

    Fitted: minimum and maximum of each column in train; of joined columns over the train interactions, of lists over all
    elements. Null, NaN and inf are excluded. Numbers outside the range are not clipped. With one distinct value in train,
    or none, every number becomes 0.5.
    Nulls: null and NaN stay null; inf stays inf, except for that 0.5.
    Lists: element by element; a null list becomes an empty one.
    Output: float64 (written as float32), named as the input.
    """

    op: Literal["NormalizeMinMax"] = "NormalizeMinMax"
    columns: DistinctNames
    """Numeric columns, each with its own range."""

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
        """Compute the range of each column, in one row; lists by element."""
        bounds = (pl.col(VALUE).min().alias("low"), pl.col(VALUE).max().alias("high"))
        return {column: finite_values(frame, column, weight).select(bounds) for column in self.columns}

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


def range_of(state: pa.Table) -> tuple[Any, Any]:
    """Return both ends of a range; None without values."""
    return state.column("low")[0].as_py(), state.column("high")[0].as_py()
