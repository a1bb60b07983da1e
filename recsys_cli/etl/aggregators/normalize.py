"""Means and standard deviations: moments of parts, in order of the parts.

The moments of a part are sums of whole numbers, which are the same in any order: engines that add in another order, or that
count a row as often as it comes instead of reading it as often, come to the same bytes. A value becomes its share of the range,
which is cut into two digits of base 2^30; what is left out is below 2^-60 of the range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.features.ops import Normalize

BASE = float(1 << 30)
"""Of the digits that a value is cut into."""


def moments(values: npt.NDArray[np.float64]) -> dict[str, float | int]:
    """Return count, mean, sum of squared deviations (`squares`) and range of at least one finite value.

    Divisions by one number are products with its inverse, as Polars calculates them.
    """
    count, low, high = len(values), values.min(), values.max()
    with np.errstate(all="ignore"):  # a constant, or numbers whose squares are none
        mean = low + (high - low) * (_total((values - low) * (1.0 / (high - low))) * (1.0 / count))
        deviations = values - mean
        widest = np.abs(deviations).max()
        squares = widest * widest * _total(np.square(deviations * (1.0 / widest)))
    return {
        "count": count, "mean": float(mean), "squares": float(squares), "low": float(low), "high": float(high),
    }  # fmt: skip


def _total(shares: npt.NDArray[np.float64]) -> float:
    """Return the sum of numbers of -1 to 1, whatever their order; NaN counts nothing."""
    scaled = np.nan_to_num(shares, nan=0.0) * BASE
    first = np.floor(scaled)
    second = np.floor((scaled - first) * BASE)
    return (float(first.astype(np.int64).sum()) + float(second.astype(np.int64).sum()) / BASE) / BASE


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Put the moments of parts one below the other: adding them up at the end makes the same sum, whoever merged which."""
    return pa.concat_tables(parts)


def finalize(op: Normalize, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return mean and standard deviation of each column; 0 for the deviation of a constant, and both for no value."""
    return {column: _state(*_moments(merged[column])) for column in op.columns}


def _state(mean: float, std: float) -> pa.Table:
    return pa.table({"mean": pa.array([mean], pa.float64()), "std": pa.array([std], pa.float64())})


def _moments(parts: pa.Table) -> tuple[float, float]:
    """Combine moments two by two (Chan, Golub and LeVeque, 1979), which keeps the digits that sums of squares lose."""
    count, mean, squares = 0, 0.0, 0.0
    low, high = math.inf, -math.inf
    for part in parts.to_pylist():
        if not part["count"]:
            continue
        together = count + part["count"]
        apart = part["mean"] - mean
        mean += apart * (part["count"] / together)
        squares += part["squares"] + apart * apart * (count * (part["count"] / together))
        count = together
        low, high = min(low, part["low"]), max(high, part["high"])
    if low >= high:
        return (low, 0.0) if count else (0.0, 0.0)  # rounding makes a mean that is not quite the constant
    if not math.isfinite(mean) or not math.isfinite(squares):
        return 0.0, math.inf
    return mean, math.sqrt(squares / (count - 1))
