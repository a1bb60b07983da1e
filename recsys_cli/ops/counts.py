"""Value counts: partial counts of rows, their sum, and their order.

Integers and short strings are counted as 64-bit keys, many times faster than strings. A table of counts has the columns
`value` (unique, at most one null) and `count` (int64), unordered. Until the final sort, short strings are packed
(`string_keys.pack`), in a column `packed` in place of `value`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.features.spec import is_text
from recsys_cli.features.string_keys import pack, unpack
from recsys_cli.packages import pc, pl

Keys = npt.NDArray[np.integer]
Tally = tuple[Keys, npt.NDArray[np.int64]]
"""Unique keys in ascending order, and their counts."""
VALUE, PACKED = "value", "packed"
_NARROW = 4
"""Largest ratio of key range to number of rows for a dense array of counters."""
_SLOT_BITS, _SAMPLE = 16, 1024
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def count(values: pa.Array) -> pa.Table:
    """Count values, including null."""
    keys = _keys(values)
    if keys is None:
        frame = pl.DataFrame({VALUE: pl.from_arrow(values)})
        return frame.group_by(VALUE).agg(pl.len().cast(pl.Int64).alias("count")).to_arrow()
    if values.null_count:
        keys = keys[values.is_valid().to_numpy(zero_copy_only=False)]
    kind = None if is_text(values.type) else values.type
    return _table(_of(keys), kind, nulls=values.null_count)


def add_up(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the sum of several tables of counts."""
    if len(parts) == 1:
        return parts[0]
    kinds = {_kind(part) for part in parts}
    tallies = [tally for part in parts if (tally := _tally(part)) is not None] if len(kinds) == 1 else []
    if len(tallies) < len(parts):
        merged = pl.concat([pl.DataFrame(unpacked(part)) for part in parts], how="vertical_relaxed")
        return merged.group_by(VALUE).agg(pl.col("count").sum()).to_arrow()
    *others, largest = sorted(tallies, key=lambda tally: len(tally[0]))
    added = _into(largest, _in_one(others))
    total = sum(pc.sum(part.column("count")).as_py() or 0 for part in parts)
    return _table(added, kinds.pop(), nulls=total - int(added[1].sum()))


def in_order(counts: pa.Table) -> pa.Table:
    """Return counts without null, sorted by (count descending, value ascending), unpacked."""
    counts = without_null(counts)
    tally = _tally(counts)
    if tally is None:
        return pl.DataFrame(counts).sort("count", VALUE, descending=[True, False]).to_arrow()
    keys, times = tally
    order = np.lexsort((keys, -times))
    return unpacked(_table((keys[order], times[order]), _kind(counts), nulls=0))


def without_null(counts: pa.Table) -> pa.Table:
    """Return counts without the row of null."""
    values = counts.column(0)
    return counts.filter(values.is_valid()) if values.null_count else counts


def unpacked(counts: pa.Table) -> pa.Table:
    """Return counts with their strings unpacked."""
    if PACKED not in counts.column_names:
        return counts
    numbers = counts.column(PACKED).combine_chunks()
    texts = unpack((numbers.fill_null(0) if numbers.null_count else numbers).to_numpy())
    if numbers.null_count:
        texts = pc.if_else(numbers.is_valid(), texts, pa.scalar(None, texts.type))
    return pa.table({VALUE: texts, "count": counts.column("count")})


def _kind(counts: pa.Table) -> pa.DataType | None:
    kind = counts.schema.field(0).type
    return None if PACKED in counts.column_names or is_text(kind) else kind


def _keys(values: pa.Array) -> Keys | None:
    """Return order-preserving 64-bit keys, arbitrary for null; None if a value has none."""
    if pa.types.is_integer(values.type):
        kind = np.uint64 if pa.types.is_uint64(values.type) else np.int64
        return (values.fill_null(0) if values.null_count else values).to_numpy().astype(kind, copy=False)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        keys, refused = pack(values)
        if values.null_count:
            refused &= values.is_valid().to_numpy(zero_copy_only=False)
        return None if refused.any() else keys
    return None


def _tally(counts: pa.Table) -> Tally | None:
    """Return counts without null by 64-bit key; None if a value has none."""
    counts = without_null(counts)
    keys = _keys(counts.column(0).combine_chunks())
    if keys is None:
        return None
    tally = keys, counts.column("count").to_numpy()
    return tally if (keys[1:] > keys[:-1]).all() else _in_one([tally])


def _of(keys: Keys) -> Tally:
    if not len(keys):
        return keys, np.zeros(0, dtype=np.int64)
    low, high = int(keys.min()), int(keys.max())
    if high - low <= _NARROW * len(keys):
        counts = np.bincount((keys - keys.dtype.type(low)).astype(np.int64, copy=False))
        offsets = np.flatnonzero(counts)
        return offsets.astype(keys.dtype) + keys.dtype.type(low), counts[offsets]
    sample = keys[:: max(1, len(keys) // _SAMPLE)]
    if len(keys) < 1 << _SLOT_BITS or 2 * len(np.unique(sample)) > len(sample):
        distinct, counts = np.unique(keys, return_counts=True)
        return distinct, counts.astype(np.int64, copy=False)
    return _of_few(keys)


def _of_few(keys: Keys) -> Tally:
    """Count keys with few unique values by hash slot; the rare keys of a shared slot are sorted."""
    slots = ((keys.view(np.uint64) * _GOLDEN) >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
    owners = np.zeros(1 << _SLOT_BITS, dtype=keys.dtype)
    owners[slots] = keys
    has_own = owners[slots] == keys
    others, of_others = np.unique(keys[~has_own], return_counts=True)
    counts = np.bincount(slots if not len(others) else slots[has_own], minlength=len(owners))
    used = np.flatnonzero(counts)
    return _in_one([(owners[used], counts[used]), (others, of_others.astype(np.int64, copy=False))])


def _in_one(tallies: Sequence[Tally]) -> Tally:
    """Return the sum of tallies, possibly with unsorted and repeated keys."""
    keys, counts = (np.concatenate(parts) for parts in zip(*tallies, strict=True))
    # Parts are usually sorted: the stable sort merges sorted runs, many times faster than a hash group-by.
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    return keys[first], np.add.reduceat(counts, first) if len(first) else counts


def _into(large: Tally, small: Tally) -> Tally:
    """Return the sum of two sorted tallies; the large one, possibly most of the memory, is only copied."""
    keys, counts = large
    positions = np.searchsorted(keys, small[0])
    exists = np.append(keys, keys.dtype.type(0))[positions] == small[0]
    exists &= positions < len(keys)
    counts = counts.copy()
    counts[positions[exists]] += small[1][exists]
    new = np.flatnonzero(~exists)
    at = positions[new] + np.arange(len(new))
    is_old = np.ones(len(keys) + len(new), dtype=bool)
    is_old[at] = False

    def inserted(old: npt.NDArray[Any], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        both = np.empty(len(is_old), dtype=old.dtype)
        both[at], both[is_old] = values, old
        return both

    return inserted(keys, small[0][new]), inserted(counts, small[1][new])


def _table(tally: Tally, kind: pa.DataType | None, *, nulls: int) -> pa.Table:
    keys, counts = tally
    values = pa.array(keys) if kind is None else pa.array(keys).cast(kind)
    if nulls:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        counts = np.append(counts, nulls)
    return pa.table({PACKED if kind is None else VALUE: values, "count": pa.array(counts, pa.int64())})
