"""Rename on NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recsys_cli.ops import Rename
from recsys_cli.serving.encoder.values import Apply, Columns, Types


def compiled(op: Rename, state: Mapping[str, pa.Table], types: Types) -> Apply:  # noqa: ARG001 - stateless op
    """Rename the columns."""
    for old, new in op.columns.items():
        types[new] = types.pop(old)

    def apply(columns: Columns, rows: int) -> None:  # noqa: ARG001 - as every Apply
        for old, new in op.columns.items():
            columns[new] = columns.pop(old)

    return apply
