"""HashedCross on NumPy, with the hash function common to all engines."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recsys_cli.features.hashing import hash_counters
from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.ops import HashedCross
from recsys_cli.serving.encoder.ids import buckets, hashes_of, null_mask
from recsys_cli.serving.encoder.values import Apply, Columns, Types, Values


def compiled(op: HashedCross, state: Mapping[str, pa.Table], types: Types) -> Apply:  # noqa: ARG001 - stateless op
    """Add the crossed column as bucket ids."""
    types[op.output] = pa.int32()
    first, *others = op.columns

    def apply(columns: Columns, rows: int) -> None:  # noqa: ARG001 - as every Apply
        hashes = hashes_of(columns[first].data)
        for name in others:
            hashes = hash_counters(hashes, hashes_of(columns[name].data))
        ids = buckets(hashes, op.num_buckets, FIRST)
        for name in op.columns:
            nulls = null_mask(columns[name])
            if nulls is not None:
                ids[nulls] = NULL
        columns[op.output] = Values(ids)

    return apply
