"""HashedCross beside NVTabular, for the reasons that `hash_bucket` has.

NVTabular also takes the exclusive or of the hashes, so that (a, b) and (b, a) get one id, and all pairs of equal values one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl.hashed import crossed_ids
from recsys_cli.etl.nvtabular_engine.plain import elements
from recsys_cli.features.ops import HashedCross


def apply(op: HashedCross, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - nothing learnt or written
    """Add the column of ids."""
    ids = pa.array(crossed_ids([elements(rows.column(name))[0] for name in op.columns], op.num_buckets))
    if op.output in rows.column_names:
        rows = rows.drop_columns([op.output])
    return rows.append_column(op.output, ids)
