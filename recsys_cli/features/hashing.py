"""Hash of splits, shuffles and buckets: implemented here, so that no library version changes it."""

from __future__ import annotations

import struct

from recsys_cli.features.spec import is_text
from recsys_cli.features.string_keys import BLOCK_ROWS, WORD_BYTES, Words, lengths
from recsys_cli.packages import np, npt, pa

_TEXT_STREAM = 1

GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_COUNTER_MASK = (1 << 24) - 1
_FEW = 16
"""Long texts and words up to which plain Python and NumPy, respectively, are faster."""
_FLOAT64, _UINT64 = struct.Struct("<d"), struct.Struct("<Q")


def mix(seed: int, *streams: int) -> int:
    """Combine small integers (a seed, a purpose, a shard number) to a 64-bit key."""
    key = seed & _MASK
    for stream in streams:
        key = _finish((key + GOLDEN * (stream + 1)) & _MASK)
    return key


def _finish(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


TEXT_KEY = mix(0, _TEXT_STREAM)


def hash_counters(counters: npt.NDArray[np.uint64], key: int | npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash counters, not modified, with a key: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) with the initial state `key`.

    The key is a result of `mix`; or one key per counter, for an ordered hash of both.
    """
    values = counters * np.uint64(GOLDEN)
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
    """Whether `hash_values` supports a type."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return is_number or types.is_temporal(kind) or types.is_null(kind) or is_text(kind)


def hash_values(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Hash N values to 64 bits, identical on every machine and in every release; hashes of null and NaN are arbitrary.

    An integer v of any width, a boolean, date or time (as stored by Arrow) gives output v, by its 64 bits, of
    SplitMix64 started at 0. Other numbers are hashed by the bits of their float64, with -0.0 as 0.0. Text of n bytes
    starts with output n of SplitMix64 started at `mix(0, 1)`. Each 8 bytes of its UTF-8, as a little-endian word w
    padded with zeros, turn a hash h into output w of SplitMix64 started at h.
    """
    if isinstance(values, pa.DictionaryArray):
        of_values = np.append(hash_values(values.dictionary), np.uint64(0))
        return of_values[values.indices.fill_null(len(of_values) - 1).to_numpy(zero_copy_only=False)]
    if is_text(values.type):
        blocks = range(0, len(values), BLOCK_ROWS)
        hashes = [_hash_texts(Words.of(values.slice(start, BLOCK_ROWS))) for start in blocks]
        return np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)
    return hash_counters(bits(values), 0)


def hash_value(value: bool | int | float | str | bytes) -> int:
    """Hash one value as `hash_values` does, in plain Python: times and dates as their stored integers."""
    if isinstance(value, str):
        return _hash_bytes(value.encode())
    if isinstance(value, bytes):
        return _hash_bytes(value)
    if isinstance(value, float):
        (value,) = _UINT64.unpack(_FLOAT64.pack(value + 0.0))
    return _finish(int(value) * GOLDEN & _MASK)


def _hash_bytes(text: bytes) -> int:
    hashed = _finish((len(text) * GOLDEN + TEXT_KEY) & _MASK)
    for start in range(0, len(text), WORD_BYTES):
        word = int.from_bytes(text[start : start + WORD_BYTES], "little")
        hashed = _finish((word * GOLDEN + hashed) & _MASK)
    return hashed


def combine(hashed: int, other: int) -> int:
    """Hash one counter with a key, as `hash_counters` does."""
    return _finish((hashed * GOLDEN + other) & _MASK)


def hash_numbers(numbers: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    """Hash a NumPy array of integers, booleans or floats as `hash_values` does."""
    return hash_counters(_bits(numbers), 0)


def hash_packed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash short texts as `hash_values` does, from the numbers of `string_keys.pack`."""
    sizes = lengths(numbers).view(np.uint64)
    by_size = hash_counters(np.arange(WORD_BYTES + 1, dtype=np.uint64), TEXT_KEY)
    if (sizes == WORD_BYTES).all():
        return hash_counters(numbers.byteswap(), int(by_size[WORD_BYTES]))
    return np.where(sizes > 0, hash_counters(numbers.byteswap(), by_size[sizes]), by_size[0])


def bits(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the 64 bits of numbers, booleans, dates and times, equal for equal values; those of null are arbitrary."""
    types, kind = pa.types, values.type
    if types.is_null(kind):
        return np.zeros(len(values), dtype=np.uint64)
    if types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif types.is_temporal(kind):
        values = values.cast(pa.int32() if types.is_date32(kind) or types.is_time32(kind) else pa.int64())
    return _bits((values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False))


def _bits(numbers: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    if numbers.dtype.kind == "f":
        return (numbers.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return (
        numbers.view(np.uint64) if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False).view(np.uint64)
    )


def _hash_texts(texts: Words) -> npt.NDArray[np.uint64]:
    hashes = hash_counters(texts.lengths.view(np.uint64), TEXT_KEY)
    hashes = np.where(texts.lengths > 0, hash_counters(texts.word(0), hashes), hashes)
    rows, number = np.flatnonzero(texts.lengths > WORD_BYTES), 1
    while len(rows) > _FEW or (len(rows) and number < _FEW):
        hashes[rows] = hash_counters(texts.word(number, rows), hashes[rows])
        number += 1
        rows = rows[texts.lengths[rows] > WORD_BYTES * number]
    for row in rows.tolist():
        hashes[row] = _hash_bytes(texts.text(row))
    return hashes


def below(hashes: npt.NDArray[np.uint64], bound: int) -> npt.NDArray[np.uint64]:
    """Map hashes uniformly to range(bound), bound < 2^32: the scaled upper half (Lemire 2019), cheaper than a modulo."""
    return ((hashes >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)


def permutation(size: int, key: int) -> npt.NDArray[np.int64]:
    """Return a permutation of range(size), size < 2^24: counters sorted by the upper 40 bits of their hashes, as one number."""
    counters = np.arange(size, dtype=np.uint64)
    packed = hash_counters(counters, key)
    packed &= ~np.uint64(_COUNTER_MASK)
    packed |= counters
    packed.sort()
    packed &= np.uint64(_COUNTER_MASK)
    return packed.view(np.int64)
