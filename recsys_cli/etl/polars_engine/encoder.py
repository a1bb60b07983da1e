"""Encoding by a vocabulary of up to millions of values."""

from __future__ import annotations

import weakref
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import DataError
from recsys_cli.etl.hashed import Ids
from recsys_cli.etl.join_keys import canonical
from recsys_cli.features.hashing import below, hash_counters, hash_packed, hash_values
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.features.spec import is_text
from recsys_cli.features.string_keys import pack

Hashes = npt.NDArray[np.uint64]
_LOOKUP_ROWS = 1 << 24
"""Widest range of integers encoded by a lookup array (64 MB)."""

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
        self.values = _comparable(vocabulary.column("value").combine_chunks())
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
        if values.null_count:
            ids[values.is_null().to_numpy(zero_copy_only=False)] = NULL
        if num_buckets:
            unseen = np.flatnonzero(ids == UNSEEN)
            hashes = _hashes(values, unseen) if short is None else _hashes_of_short(values, unseen, *short)
            ids[unseen] = below(hashes, num_buckets).astype(np.int32) + np.int32(FIRST + len(self.values))
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
        if high - low >= _LOOKUP_ROWS or not -(2**30) < low <= high < 2**30:
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
