"""The one hash that decides splits and shuffles: written out here, so it never changes with a library's version."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_COUNTER_MASK = (1 << 24) - 1


def mix(seed: int, *streams: int) -> int:
    """Fold small integers (a seed, a purpose, a shard number) into one 64-bit key."""
    key = seed & _MASK
    for stream in streams:
        key = _finish((key + _GOLDEN * (stream + 1)) & _MASK)
    return key


def hash_counters(counters: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """Hash each counter with a key: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) started at `key`.

    Args:
        counters: Numbers to hash, such as row numbers; not changed.
        key: What `mix` returned.

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
