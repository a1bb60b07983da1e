"""Bucketize on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.ops import Bucketize
from recsys_cli.serving.encoder.values import Apply, Types, Values, caster, mapped, retype


def compiled(op: Bucketize, state: Mapping[str, pa.Table], types: Types) -> Apply:  # noqa: ARG001 - stateless op
    """Replace values by interval ids."""
    for name in op.columns:
        retype(types, name, pa.int32())
    return mapped({name: _intervals(op.of(name)) for name in op.columns})


def _intervals(boundaries: tuple[float, ...]) -> Callable[[Values], Values]:
    ends, to_floats = np.array(boundaries, dtype=np.float64), caster(pa.float64())

    def ids(values: Values) -> Values:
        data = to_floats(values).data
        intervals = ends.searchsorted(data, side="right").astype(np.int32) + np.int32(FIRST)
        return values.with_data(np.where(np.isnan(data), np.int32(NULL), intervals))

    return ids
