"""Hash buckets, shared by all engines: the hash functions of their libraries differ between releases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.etl.join_keys import canonical
from recsys_cli.features.hashing import below, hash_counters, hash_values
from recsys_cli.features.schema import FIRST, NULL

Ids = npt.NDArray[np.int32]


def bucket_ids(values: pa.Array, num_buckets: int, *, first: int = FIRST) -> Ids:
    """Return the id of the hash bucket of each value, counted from `first`; NULL for null and NaN."""
    return _ids(hash_values(values), _nulls(values), num_buckets, first)


def crossed_ids(columns: Sequence[pa.Array], num_buckets: int) -> Ids:
    """Return the id of the hash bucket of each row's combination of values; NULL if one of them is null or NaN."""
    hashes = hash_values(columns[0])
    nulls = _nulls(columns[0])
    for values in columns[1:]:
        hashes = hash_counters(hashes, hash_values(values))
        nulls |= _nulls(values)
    return _ids(hashes, nulls, num_buckets, FIRST)


def _ids(hashes: npt.NDArray[np.uint64], nulls: npt.NDArray[np.bool_], num_buckets: int, first: int) -> Ids:
    ids = below(hashes, num_buckets).astype(np.int32) + np.int32(first)
    ids[nulls] = NULL
    return ids


def _nulls(values: pa.Array) -> npt.NDArray[np.bool_]:
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    return np.array(canonical(values).is_null().to_numpy(zero_copy_only=False), dtype=bool)
