"""HashBucket on NumPy, with the hash function common to all engines."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recsys_cli.ops import HashBucket
from recsys_cli.serving.encoder.ids import hasher
from recsys_cli.serving.encoder.values import Apply, Types, mapped, retype


def compiled(op: HashBucket, state: Mapping[str, pa.Table], types: Types) -> Apply:  # noqa: ARG001 - stateless op
    """Replace values by bucket ids."""
    for name in op.columns:
        retype(types, name, pa.int32())
    return mapped({name: hasher(op.buckets_of(name)) for name in op.columns})
