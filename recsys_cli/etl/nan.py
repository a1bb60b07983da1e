"""NaN in Arrow arrays."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def nan_to_null(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return values with NaN replaced by null; those of other types than floats as they are."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
