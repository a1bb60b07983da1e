"""Exact medians of FillMedian, from merged value counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.ops import FillMedian


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Sum the counts by value, in ascending order of values."""
    if len(parts) == 1:
        return parts[0]
    stacked = pl.concat([pl.DataFrame(pl.from_arrow(part)) for part in parts])
    return stacked.group_by("value").agg(pl.col("count").sum()).sort("value").to_arrow()


def finalize(op: FillMedian, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the median of each column; 0 without values."""
    return {name: pa.table({"median": pa.array([_median(merged[name])], pa.float64())}) for name in op.columns}


def _median(counts: pa.Table) -> float:
    if counts.num_rows == 0:
        return 0.0
    values = counts.column("value").to_numpy()
    cumulative = np.cumsum(counts.column("count").to_numpy())
    total = int(cumulative[-1])
    lower, upper = values[np.searchsorted(cumulative, [(total - 1) // 2, total // 2], side="right")]
    # lower + upper could overflow; adding 0.0 turns -0.0 into 0.0.
    return float(lower if lower == upper else lower / 2 + upper / 2) + 0.0
