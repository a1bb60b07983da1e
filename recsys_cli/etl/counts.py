"""Counts by value: made of rows, added up, and put in order.

Whole numbers and short texts are counted as 64-bit numbers, which is many times faster than counting texts. A table of
counts has the columns `value`, each value once, and `count` (int64), in no order; one row may be that of null.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.features.spec import is_text
from recsys_cli.features.words import pack, unpack

Keys = npt.NDArray[np.integer]
_NARROW = 4
"""A range of whole numbers is narrow if it is no wider than so many times the rows: then it has a counter for each."""


def count(values: pa.Array) -> pa.Table:
    """Count values, null as well."""
    known = values.drop_null() if values.null_count else values
    keys = _keys(known)
    if keys is None:
        frame = pl.DataFrame({"value": pl.from_arrow(values)})
        return _arrow(frame.group_by("value").agg(pl.len().cast(pl.Int64).alias("count")))
    distinct, counts = _count_keys(keys)
    return _table(_values(distinct, values.type), counts, nulls=len(values) - len(known))


def add_up(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the counts of several tables together."""
    if len(parts) == 1:
        return parts[0]
    known = [_without_null(part) for part in parts]
    keys = [_keys(part.column("value").combine_chunks()) for part in known]
    kinds = {part.schema.field("value").type for part in parts}
    if len(kinds) > 1 or any(found is None for found in keys):
        together = pl.concat([pl.DataFrame(part) for part in parts], how="vertical_relaxed")
        return _arrow(together.group_by("value").agg(pl.col("count").sum()))
    counts = np.concatenate([part.column("count").to_numpy() for part in known])
    together = np.concatenate([found for found in keys if found is not None])
    total = sum(pc.sum(part.column("count")).as_py() or 0 for part in parts)
    nulls = total - int(counts.sum())
    # Parts are sorted as a rule, and this sort merges sorted runs, many times faster than a group-by hashes them.
    order = np.argsort(together, kind="stable")
    together, counts = together[order], counts[order]
    first = np.flatnonzero(np.append(True, together[1:] != together[:-1])[: len(together)])
    added = np.add.reduceat(counts, first) if len(first) else counts
    return _table(_values(together[first], kinds.pop()), added, nulls=nulls)


def in_order(counts: pa.Table) -> pa.Table:
    """Return counts, without that of null, by (count descending, value ascending)."""
    keys = _keys(counts.column("value").combine_chunks())
    if keys is None:
        return _arrow(pl.DataFrame(counts).sort("count", "value", descending=[True, False]))
    found = counts.column("count").to_numpy()
    order = np.lexsort((keys, -found))
    return _table(_values(keys[order], counts.schema.field("value").type), found[order], nulls=0)


def _without_null(counts: pa.Table) -> pa.Table:
    values = counts.column("value")
    return counts.filter(values.is_valid()) if values.null_count else counts


def _keys(values: pa.Array) -> Keys | None:
    """Return numbers that are equal, and in order, as values without a null are; None if there are none of 64 bits."""
    if pa.types.is_integer(values.type):
        kind = np.uint64 if pa.types.is_uint64(values.type) else np.int64
        return values.to_numpy().astype(kind, copy=False)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        keys, refused = pack(values)
        return None if refused.any() else keys
    return None


def _values(keys: Keys, kind: pa.DataType) -> pa.Array:
    if is_text(kind):
        return unpack(keys.astype(np.uint64, copy=False))
    return pa.array(keys).cast(kind)


def _count_keys(keys: Keys) -> tuple[Keys, npt.NDArray[np.int64]]:
    if len(keys):
        low, high = int(keys.min()), int(keys.max())
        if high - low <= _NARROW * len(keys):
            counts = np.bincount((keys - keys.dtype.type(low)).astype(np.int64, copy=False))
            found = np.flatnonzero(counts)
            return found.astype(keys.dtype) + keys.dtype.type(low), counts[found]
    distinct, counts = np.unique(keys, return_counts=True)
    return distinct, counts.astype(np.int64, copy=False)


def _table(values: pa.Array, counts: npt.NDArray[np.int64], *, nulls: int) -> pa.Table:
    if nulls:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        counts = np.append(counts, nulls)
    return pa.table({"value": values, "count": pa.array(counts, pa.int64())})


def _arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow()
