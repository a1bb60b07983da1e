"""Medians: counts of parts added up, in which the middle is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.features.ops import FillMedian


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Add up counts of the same value, in ascending order of values."""
    if len(parts) == 1:
        return parts[0]
    together = pl.concat([pl.DataFrame(pl.from_arrow(part)) for part in parts])
    return together.group_by("value").agg(pl.col("count").sum()).sort("value").to_arrow()


def finalize(op: FillMedian, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return each column's median, or 0 where there is no value."""
    return {name: pa.table({"median": pa.array([_median(merged[name])], pa.float64())}) for name in op.columns}


def _median(counts: pa.Table) -> float:
    """Return the value in the middle, or the mean of the two there."""
    if counts.num_rows == 0:
        return 0.0
    values = counts.column("value").to_numpy()
    reached = np.cumsum(counts.column("count").to_numpy())
    total = int(reached[-1])
    lower, upper = values[np.searchsorted(reached, [(total - 1) // 2, total // 2], side="right")]
    # The sum of both may not be finite; the zero makes 0.0 of -0.0.
    return float(lower if lower == upper else lower / 2 + upper / 2) + 0.0
