"""Vocabularies of up to millions of values: their counts, and indexes for requests (single values) and engines (Arrow columns)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

from recsys_cli.errors import DataError
from recsys_cli.features.hashing import below, hash_counters, hash_numbers, hash_packed, hash_value, hash_values
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.features.spec import is_text
from recsys_cli.features.string_keys import pack, unpack
from recsys_cli.ops.values import FEW_ROWS, Array, Values, canonical, combined, comparable, hashes_of, null_mask, stored
from recsys_cli.packages import np, npt, pa, pc, pl

Keys: TypeAlias = "npt.NDArray[np.integer]"
Tally: TypeAlias = "tuple[Keys, npt.NDArray[np.int64]]"
"""Unique keys in ascending order, and their counts."""
VALUE, PACKED = "value", "packed"
_NARROW = 4
"""Largest ratio of key range to number of rows for a dense array of counters."""
_SLOT_BITS, _SAMPLE = 16, 1024
_GOLDEN = 0x9E3779B97F4A7C15


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


def hashes_of_counts(counts: pa.Table) -> Hashes:
    """Return the hash of each value of a table of counts, equal for packed and other text; 0 for null."""
    values = counts.column(0).combine_chunks()
    if PACKED in counts.column_names:
        hashes = hash_packed((values.fill_null(0) if values.null_count else values).to_numpy())
    else:
        values = _comparable(values)
        hashes = hash_values(values)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), np.uint64(0), hashes)


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
    slots = ((keys.view(np.uint64) * np.uint64(_GOLDEN)) >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
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


Hashes: TypeAlias = "npt.NDArray[np.uint64]"
Ids: TypeAlias = "npt.NDArray[np.int32]"

MAX_LOOKUP_ROWS = 1 << 24
"""Widest range of integers encoded by a lookup array (64 MB)."""
ABSENT = -1
"""Position of a value outside the vocabulary."""
MAX_CACHED = 1 << 16
"""Maximum number of looked-up values kept in memory."""


class VocabularyIndex:
    """Index of V distinct values: the position of a value, in microseconds.

    The hash of a number is injective; text is compared with the value at its position.

    Attributes:
        arrays: By name: `hashes` (uint64, ascending), `positions` (int32, of each hash), each of shape (V,); of text also
            the UTF-8 `bytes` of all values and their `offsets`, shape (V + 1,).
    """

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays
        self._hashes, self._positions = arrays["hashes"], arrays["positions"]
        self._bytes, self._offsets = arrays.get("bytes"), arrays.get("offsets")
        self._found: dict[Any, int] = {}

    @classmethod
    def build(cls, values: pa.Array | pa.ChunkedArray | Sequence[Any] | Array) -> VocabularyIndex:
        """Index distinct values; decimals as text. A null is a forgotten value: it keeps its position, and nothing matches it."""
        values = combined(values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values))
        if pa.types.is_decimal(values.type):
            values = values.cast(pa.string())
        hashes = hash_values(values)
        gone = values.is_null().to_numpy(zero_copy_only=False)
        order = np.lexsort((gone, hashes)) if gone.any() else np.argsort(hashes, kind="stable")
        positions = np.where(gone[order], ABSENT, order).astype(np.int32)
        arrays: dict[str, Array] = {"hashes": hashes[order], "positions": positions}
        if stored(values.type).kind == "O":
            texts = values.cast(pa.large_binary())
            _, offsets, data = texts.buffers()
            ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
            size = int(ends[-1] - ends[0]) if len(ends) else 0
            first = int(ends[0]) if size else 0
            arrays["bytes"] = (
                np.frombuffer(data, np.uint8)[first : first + size].copy() if size else np.empty(0, np.uint8)
            )
            arrays["offsets"] = ends - first if len(ends) else np.zeros(1, np.int64)
        return cls(arrays)

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return self._bytes is not None

    def __len__(self) -> int:
        return len(self._hashes)

    def position(self, value: Any) -> int:
        """Return the position of one value, not null; ABSENT without a match."""
        found = self._found.get(value)
        if found is None:
            if len(self._found) >= MAX_CACHED:
                self._found.clear()
            found = self._found[value] = self._search(value)
        return found

    def positions(self, data: Array) -> npt.NDArray[np.int32]:
        """Return the position of each value, int32; nulls are arbitrary.

        Args:
            data: Values of one column, shape (N,): numbers, or objects of text.
        """
        if data.dtype == object or len(data) <= FEW_ROWS:
            found = (ABSENT if value is None else self.position(value) for value in data.tolist())
            return np.fromiter(found, np.int32, len(data))
        if not len(self):
            return np.full(len(data), ABSENT, dtype=np.int32)
        hashes = hash_numbers(data)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self) - 1)
        return np.where(self._hashes[places] == hashes, self._positions[places], np.int32(ABSENT))

    def _search(self, value: Any) -> int:
        text = value.encode() if isinstance(value, str) else value
        hashed = np.uint64(hash_value(text))
        hashes = self._hashes
        place = int(hashes.searchsorted(hashed))
        while place < len(hashes) and hashes[place] == hashed:
            position = int(self._positions[place])
            if self._bytes is None or self._is_at(position, text):
                return position
            place += 1
        return ABSENT

    def _is_at(self, position: int, text: bytes) -> bool:
        assert self._bytes is not None
        assert self._offsets is not None
        return self._bytes[self._offsets[position] : self._offsets[position + 1]].tobytes() == text

    def encode(self, values: Values, num_buckets: int = 0) -> Values:
        """Return ids: NULL for null and NaN, UNSEEN or a hash bucket behind the vocabulary for other values."""
        values = comparable(values)
        positions = self.positions(values.data)
        ids = positions + np.int32(FIRST)
        absent = positions == ABSENT
        ids[absent] = (
            bucket_ids(hashes_of(values.data[absent]), num_buckets, FIRST + len(self)) if num_buckets else UNSEEN
        )
        nulls = null_mask(values)
        if nulls is not None:
            ids[nulls] = NULL
        return values.with_data(ids)


def bucket_ids(hashes: Hashes, num_buckets: int, first: int = FIRST) -> Ids:
    """Return the ids of hash buckets, from `first` on."""
    return below(hashes, num_buckets).astype(np.int32) + np.int32(first)


_encoders: dict[int, Encoder] = {}
_building = Lock()


def encoder_of(vocabulary: pa.Table) -> Encoder:
    """Return the encoder of a vocabulary, cached for the lifetime of the table."""
    with _building:
        encoder = _encoders.get(id(vocabulary))
        if encoder is None:
            encoder = _encoders[id(vocabulary)] = Encoder(vocabulary)
            weakref.finalize(vocabulary, _encoders.pop, id(vocabulary), None).atexit = False
        return encoder


class Encoder:
    """Encodes values with one vocabulary.

    Integers in a narrow range use a lookup array, others a hash index. The hash of numbers and of strings up to 8 bytes
    is injective; longer strings are compared with their match.
    """

    def __init__(self, vocabulary: pa.Table) -> None:
        values = _comparable(vocabulary.column("value").combine_chunks())
        self.values = values.drop_null() if values.null_count else values
        self._num_ids = len(values)
        self._ids = np.flatnonzero(values.is_valid()).astype(np.int32) + FIRST if values.null_count else None
        """Ids of the values if some are forgotten."""
        self._low = 0
        self._lookup = self._lookup_array() if pa.types.is_integer(self.values.type) else None
        self._is_short = False
        """Whether all strings of the vocabulary are short, so that they are indexed as numbers."""
        self._index = self._index_of() if self._lookup is None else None

    def __call__(self, values: pa.Array, *, num_buckets: int = 0) -> Ids:
        """Return int32 ids: NULL for nulls, UNSEEN or a hash bucket behind the vocabulary for other values.

        Raises:
            DataError: Values and vocabulary differ in kind (string, integer, float).
        """
        if pa.types.is_null(values.type):
            return np.full(len(values), NULL, dtype=np.int32)
        if isinstance(values, pa.DictionaryArray):
            dictionary_ids = np.append(self(values.dictionary, num_buckets=num_buckets), np.int32(NULL))
            return dictionary_ids[values.indices.fill_null(len(dictionary_ids) - 1).to_numpy(zero_copy_only=False)]
        values = _comparable(values)
        self._check(values.type)
        short = pack(values) if self._is_short and is_text(values.type) else None
        if short is not None:
            ids = self._encode_short(*short)
        else:
            ids = self._look_up(values) if self._lookup is not None else self._search(values)
        if self._ids is not None:
            ids[ids >= FIRST] = self._ids[ids[ids >= FIRST] - FIRST]
        if values.null_count:
            ids[values.is_null().to_numpy(zero_copy_only=False)] = NULL
        if num_buckets:
            unseen = np.flatnonzero(ids == UNSEEN)
            hashes = _hashes(values, unseen) if short is None else _hashes_of_short(values, unseen, *short)
            ids[unseen] = bucket_ids(hashes, num_buckets, FIRST + self._num_ids)
        return ids

    def _look_up(self, values: pa.Array) -> Ids:
        # The lookup array has an UNSEEN entry at each end, for values clipped to its range.
        assert self._lookup is not None
        keys = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
        if pa.types.is_uint64(values.type):
            keys = np.minimum(keys, np.uint64(2**62))
        return np.take(self._lookup, keys.astype(np.int64, copy=False) - (self._low - 1), mode="clip")

    def _encode_short(self, numbers: Hashes, refused: npt.NDArray[np.bool_]) -> Ids:
        """Return the ids of packed strings, arbitrary for nulls."""
        assert self._index is not None
        ids = self._index.find(hash_counters(numbers, 0))
        ids[refused] = UNSEEN
        return ids

    def _search(self, values: pa.Array) -> Ids:
        if self._index is None:
            rows = pc.index_in(values, value_set=self.values.cast(values.type))
            return pc.add(rows, FIRST).fill_null(UNSEEN).to_numpy().astype(np.int32, copy=False)
        ids = self._index.find(hash_values(values))
        if not is_text(values.type) or not len(self.values):
            return ids
        rows = np.flatnonzero(ids != UNSEEN)
        matches = self.values.take(pa.array(ids[rows] - FIRST))
        same = pc.equal(values.take(pa.array(rows)), matches.cast(values.type)).fill_null(False)
        ids[rows[~same.to_numpy(zero_copy_only=False)]] = UNSEEN
        return ids

    def _index_of(self) -> Index | None:
        """Return the hash index; None on a hash collision of two strings, a rare case."""
        if is_text(self.values.type):
            numbers, refused = pack(self.values)
            if not refused.any():
                self._is_short = True
                return Index(hash_counters(numbers, 0))
        hashes = hash_values(self.values)
        return Index(hashes) if len(np.unique(hashes)) == len(hashes) else None

    def _check(self, kind: pa.DataType) -> None:
        own = self.values.type
        same = is_text(kind) == is_text(own) and pa.types.is_floating(kind) == pa.types.is_floating(own)
        if not same and len(self.values) and not pa.types.is_null(kind):
            raise DataError(f"the vocabulary has type {own}, but the column has type {kind}")

    def _lookup_array(self) -> Ids | None:
        if len(self.values) == 0:
            return None
        keys = self.values.to_numpy()
        low, high = int(keys.min()), int(keys.max())
        if high - low >= MAX_LOOKUP_ROWS or not -(2**30) < low <= high < 2**30:
            return None
        self._low = low
        lookup = np.full(high - low + 3, UNSEEN, dtype=np.int32)
        lookup[keys.astype(np.int64) - low + 1] = np.arange(FIRST, FIRST + len(keys), dtype=np.int32)
        return lookup


def _hashes(values: pa.Array, rows: npt.NDArray[np.intp]) -> Hashes:
    return hash_values(values.take(pa.array(rows)))


def _hashes_of_short(
    values: pa.Array, rows: npt.NDArray[np.intp], numbers: Hashes, refused: npt.NDArray[np.bool_]
) -> Hashes:
    """Return the same as `_hashes`, from packed strings."""
    hashes = hash_packed(numbers[rows])
    others = np.flatnonzero(refused[rows])
    if len(others):
        hashes[others] = _hashes(values, rows[others])
    return hashes


def _comparable(values: pa.Array) -> pa.Array:
    """Return canonical values; decimals as strings, because they exceed 64 bits."""
    return values.cast(pa.string()) if pa.types.is_decimal(values.type) else canonical(values)


class Index:
    """Index of V sorted hashes; the upper bits of a hash give the start of its search."""

    def __init__(self, hashes: Hashes) -> None:
        order = np.argsort(hashes)
        num_bits = max(1, len(hashes).bit_length())
        self._shift = np.uint64(64 - num_bits)
        ordered = hashes[order]
        sizes = np.bincount((ordered >> self._shift).view(np.int64), minlength=1 << num_bits)
        self._starts = (np.cumsum(sizes) - sizes).astype(np.int32)
        # A sentinel at the end stops every search; its id is UNSEEN.
        self._hashes = np.append(ordered, np.uint64(2**64 - 1))
        self._ids = np.append(order + FIRST, UNSEEN).astype(np.int32)

    def find(self, hashes: Hashes) -> Ids:
        """Return the id of each hash, UNSEEN without a match."""
        positions = self._starts[(hashes >> self._shift).view(np.int64)].astype(np.int64)
        found = self._hashes[positions]
        rows = np.flatnonzero(found < hashes)
        while len(rows):
            positions[rows] += 1
            found[rows] = self._hashes[positions[rows]]
            rows = rows[found[rows] < hashes[rows]]
        return np.where(found == hashes, self._ids[positions], np.int32(UNSEEN))


def encode_arrow(array: pa.Array, to_ids: Callable[[pa.Array], Ids]) -> pa.Array:
    """Encode Arrow values as int32 ids; lists by element, with an empty list for a null list."""
    if isinstance(array, pa.LargeListArray):
        array = array.cast(pa.list_(array.type.value_type))
    if not isinstance(array, pa.ListArray):
        return pa.array(to_ids(array))
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int32))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(to_ids(array.flatten())))


def encode_column(column: str, frame: pl.LazyFrame, to_ids: Callable[[pa.Array], Ids]) -> pl.Expr:
    """Encode a column of a query in Arrow memory."""
    is_list = isinstance(frame.select(column).collect_schema()[column], pl.List)
    kind = pl.List(pl.Int32()) if is_list else pl.Int32()
    return pl.col(column).map_batches(partial(_encoded, to_ids), return_dtype=kind)


def _encoded(to_ids: Callable[[pa.Array], Ids], series: pl.Series) -> pl.Series:
    return pl.Series(series.name, pl.from_arrow(encode_arrow(series.to_arrow(), to_ids)))
