"""Ranges of columns, integer or float."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the range `low` to `high` over all parts; null if all are null."""
    stacked = pa.concat_tables(parts)
    low, high = pc.min(stacked.column("low")), pc.max(stacked.column("high"))
    return pa.table({
        "low": pa.array([low.as_py()], stacked.schema.field("low").type),
        "high": pa.array([high.as_py()], stacked.schema.field("high").type),
    })  # fmt: skip
