"""HashedCross without NVTabular, for the reasons in `hash_bucket`.

NVTabular also combines hashes by XOR, so (a, b) and (b, a) collide, and so do all pairs of equal values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl.hashed import crossed_ids
from recsys_cli.etl.nvtabular_engine.plain import elements, set_column
from recsys_cli.ops import HashedCross


def apply(op: HashedCross, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - stateless, no files
    """Add the crossed column as bucket ids."""
    ids = pa.array(crossed_ids([elements(rows.column(name))[0] for name in op.columns], op.num_buckets))
    return set_column(rows, op.output, ids)
