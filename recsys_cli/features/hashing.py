"""The one hash that decides splits, shuffles and buckets: written out here, so it never changes with a library's version."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.features.spec import is_text
from recsys_cli.features.string_keys import BLOCK_ROWS, WORD_BYTES, Words, lengths

_TEXT_STREAM = 1

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_COUNTER_MASK = (1 << 24) - 1


def mix(seed: int, *streams: int) -> int:
    """Fold small integers (a seed, a purpose, a shard number) into one 64-bit key."""
    key = seed & _MASK
    for stream in streams:
        key = _finish((key + _GOLDEN * (stream + 1)) & _MASK)
    return key


def hash_counters(counters: npt.NDArray[np.uint64], key: int | npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash each counter with a key: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) started at `key`.

    Args:
        counters: Numbers to hash, such as row numbers; not changed.
        key: What `mix` returned, or one key for each counter: then the result is a hash of both, in this order.

    Returns:
        One uniform 64-bit number for each counter.
    """
    values = counters * np.uint64(_GOLDEN)
    values += np.uint64(key)
    shifted = values >> np.uint64(30)
    values ^= shifted
    values *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(values, np.uint64(27), out=shifted)
    values ^= shifted
    values *= np.uint64(0x94D049BB133111EB)
    np.right_shift(values, np.uint64(31), out=shifted)
    values ^= shifted
    return values


def can_hash(kind: pa.DataType) -> bool:
    """Whether `hash_values` takes values of a type."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return is_number or types.is_temporal(kind) or types.is_null(kind) or is_text(kind)


def hash_values(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Hash each value, on every machine and for ever to the same 64 bits; what a null or NaN hashes to means nothing.

    A whole number v of any width, a truth value, date or time (as the integer that Arrow stores) is output number v, by its
    64 bits, of SplitMix64 started at 0. A number with a fraction is hashed by the bits of its float64, where -0.0 is 0.0.
    A text starts with output number n, its length in bytes, of SplitMix64 started at `mix(0, 1)`; each 8 bytes of its UTF-8,
    as a little-endian word w with zeros behind the last, turn a hash h into output number w of SplitMix64 started at h.

    Args:
        values: N values of a type that `can_hash`.

    Returns:
        N hashes.
    """
    if isinstance(values, pa.DictionaryArray):
        of_values = np.append(hash_values(values.dictionary), np.uint64(0))
        return of_values[values.indices.fill_null(len(of_values) - 1).to_numpy(zero_copy_only=False)]
    if is_text(values.type):
        blocks = range(0, len(values), BLOCK_ROWS)
        hashes = [_hash_texts(Words.of(values.slice(start, BLOCK_ROWS))) for start in blocks]
        return np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)
    return hash_counters(bits(values), 0)


def hash_packed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash short texts as `hash_values` does, given the numbers that `string_keys.pack` made of them."""
    sizes = lengths(numbers).view(np.uint64)
    by_size = hash_counters(np.arange(WORD_BYTES + 1, dtype=np.uint64), mix(0, _TEXT_STREAM))
    if (sizes == WORD_BYTES).all():
        return hash_counters(numbers.byteswap(), int(by_size[WORD_BYTES]))
    return np.where(sizes > 0, hash_counters(numbers.byteswap(), by_size[sizes]), by_size[0])


def bits(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Return numbers, truth values, dates and times as 64 bits each, the same for the same value; those of null mean nothing.

    Whole numbers are widened to int64, others to float64 without a negative zero.
    """
    types, kind = pa.types, values.type
    if types.is_null(kind):
        return np.zeros(len(values), dtype=np.uint64)
    if types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif types.is_temporal(kind):
        values = values.cast(pa.int32() if types.is_date32(kind) or types.is_time32(kind) else pa.int64())
    found = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
    if types.is_floating(kind):
        return (found.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return found.view(np.uint64) if found.dtype == np.uint64 else found.astype(np.int64, copy=False).view(np.uint64)


def _hash_texts(texts: Words) -> npt.NDArray[np.uint64]:
    hashes = hash_counters(texts.lengths.view(np.uint64), mix(0, _TEXT_STREAM))
    hashes = np.where(texts.lengths > 0, hash_counters(texts.word(0), hashes), hashes)
    rows, number = np.flatnonzero(texts.lengths > WORD_BYTES), 1
    while len(rows):
        hashes[rows] = hash_counters(texts.word(number, rows), hashes[rows])
        number += 1
        rows = rows[texts.lengths[rows] > WORD_BYTES * number]
    return hashes


def below(hashes: npt.NDArray[np.uint64], bound: int) -> npt.NDArray[np.uint64]:
    """Map hashes evenly to range(bound), bound < 2^32: the upper half, scaled (Lemire 2019); cheaper than a remainder."""
    return ((hashes >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)


def permutation(size: int, key: int) -> npt.NDArray[np.int64]:
    """Return a permutation of range(size), size < 2^24: the counters in the order of their hashes' upper 40 bits.

    Counter and hash are sorted as one number, which is many times faster than an argsort; equal hashes keep their order.
    """
    counters = np.arange(size, dtype=np.uint64)
    packed = hash_counters(counters, key)
    packed &= ~np.uint64(_COUNTER_MASK)
    packed |= counters
    packed.sort()
    packed &= np.uint64(_COUNTER_MASK)
    return packed.view(np.int64)


def _finish(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
