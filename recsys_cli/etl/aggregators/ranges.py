"""Ranges of NormalizeMinMax and ReduceDtypeSize, integer or float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.ops import NormalizeMinMax, ReduceDtypeSize


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the range `low` to `high` over all parts; null if all are null."""
    stacked = pa.concat_tables(parts)
    low, high = pc.min(stacked.column("low")), pc.max(stacked.column("high"))
    return pa.table({
        "low": pa.array([low.as_py()], stacked.schema.field("low").type),
        "high": pa.array([high.as_py()], stacked.schema.field("high").type),
    })  # fmt: skip


def finalize(op: NormalizeMinMax | ReduceDtypeSize, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the merged ranges."""
    return {column: merged[column] for column in op.columns}
