"""Ids of values: by a vocabulary with hash buckets, or by a hash alone; lists by element."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.features.hashing import below, hash_numbers, hash_value
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.serving.encoder.values import Array, Values
from recsys_cli.serving.encoder.vocabulary import ABSENT, VocabularyIndex

Hashes = npt.NDArray[np.uint64]


def hashes_of(data: Array) -> Hashes:
    """Hash values as `hashing.hash_values` does; hashes of null and NaN are arbitrary."""
    if data.dtype != object:
        return hash_numbers(data)
    return np.fromiter((0 if value is None else hash_value(value) for value in data.tolist()), np.uint64, len(data))


def buckets(hashes: Hashes, num_buckets: int, first: int) -> npt.NDArray[np.int32]:
    """Return the ids of hash buckets, from `first` on."""
    return below(hashes, num_buckets).astype(np.int32) + np.int32(first)


def null_mask(values: Values) -> Array | None:
    """Return the mask of null and NaN; None without any."""
    if values.data.dtype.kind != "f":
        return values.nulls
    mask = np.isnan(values.data)
    return mask if mask.any() else None


def encoder(index: VocabularyIndex, num_buckets: int) -> Callable[[Values], Values]:
    """Return the encoding by a vocabulary: NULL for null and NaN, UNSEEN or a hash bucket for other values."""

    def encode(values: Values) -> Values:
        values = comparable(values)
        positions = index.positions(values.data)
        ids = positions + np.int32(FIRST)
        absent = positions == ABSENT
        if num_buckets:
            ids[absent] = buckets(hashes_of(values.data[absent]), num_buckets, FIRST + len(index))
        else:
            ids[absent] = UNSEEN
        nulls = null_mask(values)
        if nulls is not None:
            ids[nulls] = NULL
        return values.with_data(ids)

    return encode


def hasher(num_buckets: int) -> Callable[[Values], Values]:
    """Return the encoding by hash buckets: NULL for null and NaN."""

    def encode(values: Values) -> Values:
        ids = buckets(hashes_of(values.data), num_buckets, FIRST)
        nulls = null_mask(values)
        if nulls is not None:
            ids[nulls] = NULL
        return values.with_data(ids)

    return encode


def comparable(values: Values) -> Values:
    """Return values with decimals as text, as vocabularies index them."""
    if values.data.dtype != object or not any(isinstance(value, Decimal) for value in values.data):
        return values
    return Values(
        _objects([None if value is None else str(value) for value in values.data]), values.nulls, values.offsets
    )


def _objects(values: list[Any]) -> Array:
    data = np.empty(len(values), dtype=object)
    data[:] = values
    return data
