"""Vocabularies: counts of parts added up, and put in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.features.ops import Categorify
from recsys_cli.features.ops.categorify import REST

COUNTS = ("value", "count")


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Add up counts of the same value, in order of first appearance; null is counted as well."""
    if len(parts) == 1:
        return parts[0]
    together = pl.DataFrame(pl.concat([pl.DataFrame(pl.from_arrow(part)) for part in parts], how="vertical_relaxed"))
    return together.group_by("value", maintain_order=True).agg(pl.col("count").sum()).to_arrow()


def finish(op: Categorify, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Order each column's values by (count descending, value ascending); null is no value, and neither is NaN."""
    state: dict[str, pa.Table] = {}
    for column in op.columns:
        counts = pl.DataFrame(pl.from_arrow(merged[column]))
        known = _known(counts)
        nulls = int(counts.get_column("count").sum()) - int(known.get_column("count").sum())
        ordered = known.sort("count", "value", descending=[True, False])
        state[column] = _plain(ordered.to_arrow())
        state[column + REST] = pa.table({"null": pa.array([nulls], pa.int64()), "unseen": pa.array([0], pa.int64())})
    return state


def _known(counts: pl.DataFrame) -> pl.DataFrame:
    known = counts.filter(pl.col("value").is_not_null()).select("value", pl.col("count").cast(pl.Int64))
    if known.schema["value"].is_float():
        # 0.0 and -0.0 are one value, and which of them stands for it must not depend on the order of the rows.
        one_zero = pl.when(pl.col("value") == 0).then(0.0).otherwise(pl.col("value")).cast(known.schema["value"])
        known = known.filter(pl.col("value").is_not_nan()).with_columns(one_zero.alias("value"))
    return known


def _plain(table: pa.Table) -> pa.Table:
    """Return the vocabulary with plain text, however the text is stored."""
    kind = table.schema.field("value").type
    if pa.types.is_large_string(kind) or str(kind) == "string_view":
        kind = pa.string()
    values = pc.cast(table.column("value"), kind).combine_chunks()
    return pa.table({"value": values, "count": table.column("count").combine_chunks()})
