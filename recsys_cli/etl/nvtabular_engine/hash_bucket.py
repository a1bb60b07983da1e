"""HashBucket without NVTabular, with the hash function common to all engines.

NVTabular's hashes differ between pandas (CPU) and cuDF (GPU), and between releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl.hashed import bucket_ids
from recsys_cli.etl.nvtabular_engine.plain import elements, set_column
from recsys_cli.ops import HashBucket


def apply(op: HashBucket, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - stateless, no files
    """Replace values by bucket ids."""
    for name in op.columns:
        values, offsets = elements(rows.column(name))
        ids = pa.array(bucket_ids(values, op.buckets_of(name)))
        if offsets is not None:
            ids = pa.ListArray.from_arrays(pa.array(offsets), ids)
        rows = set_column(rows, name, ids)
    return rows
