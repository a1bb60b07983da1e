"""Means and standard deviations: moments of parts, in order of the parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pyarrow as pa

from recsys_cli.features.ops import Normalize


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Put the moments of parts one below the other: adding them up at the end makes the same sum, whoever merged which."""
    return pa.concat_tables(parts)


def finish(op: Normalize, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
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
