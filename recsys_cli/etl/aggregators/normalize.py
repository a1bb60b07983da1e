"""Means and standard deviations of Normalize, from the moments of shards.

The moments of a shard are integer sums, independent of row order, and equal for weights and repeated rows: all engines
give the same bytes. Each value is scaled to its range and split into two digits of base 2^30; the error is below 2^-60
of the range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.ops import Normalize

BASE = float(1 << 30)
"""Base of the digits."""


def moments(values: npt.NDArray[np.float64]) -> dict[str, float | int]:
    """Return count, mean, sum of squared deviations (`squares`) and range of at least one finite value.

    Divisions are multiplications by the reciprocal, as in Polars.
    """
    count, low, high = len(values), values.min(), values.max()
    with np.errstate(all="ignore"):  # a constant column, or overflow of squares
        mean = low + (high - low) * (_total((values - low) * (1.0 / (high - low))) * (1.0 / count))
        deviations = values - mean
        widest = np.abs(deviations).max()
        squares = widest * widest * _total(np.square(deviations * (1.0 / widest)))
    return {
        "count": count, "mean": float(mean), "squares": float(squares), "low": float(low), "high": float(high),
    }  # fmt: skip


def _total(shares: npt.NDArray[np.float64]) -> float:
    """Return the order-independent sum of numbers in [-1, 1]; NaN counts as 0."""
    scaled = np.nan_to_num(shares, nan=0.0) * BASE
    first = np.floor(scaled)
    second = np.floor((scaled - first) * BASE)
    return (float(first.astype(np.int64).sum()) + float(second.astype(np.int64).sum()) / BASE) / BASE


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Concatenate the moments; `finalize` adds them, independent of merge groups."""
    return pa.concat_tables(parts)


def finalize(op: Normalize, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return mean and deviation of each column; deviation 0 for a constant, both 0 without values."""
    return {column: _state(*_moments(merged[column])) for column in op.columns}


def _state(mean: float, std: float) -> pa.Table:
    return pa.table({"mean": pa.array([mean], pa.float64()), "std": pa.array([std], pa.float64())})


def _moments(parts: pa.Table) -> tuple[float, float]:
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
