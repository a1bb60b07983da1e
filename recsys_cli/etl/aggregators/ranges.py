"""Ranges of columns: smallest and largest of the parts, whole numbers or real ones."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the range `low` to `high` over all parts; null where none has one."""
    together = pa.concat_tables(parts)
    low, high = pc.min(together.column("low")), pc.max(together.column("high"))
    return pa.table({
        "low": pa.array([low.as_py()], together.schema.field("low").type),
        "high": pa.array([high.as_py()], together.schema.field("high").type),
    })  # fmt: skip
