"""NormalizeMinMax on NumPy; NaN passes through."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops import NormalizeMinMax
from recsys_cli.serving.encoder.values import Apply, Types, Values, caster, mapped, retype


def compiled(op: NormalizeMinMax, state: Mapping[str, pa.Table], types: Types) -> Apply:
    """Scale the columns by the range of train."""
    for name in op.columns:
        retype(types, name, pa.float64())
    return mapped({name: _scaled(**state[name].select(["low", "high"]).to_pylist()[0]) for name in op.columns})


def _scaled(low: float, high: float) -> Callable[[Values], Values]:
    to_floats = caster(pa.float64())

    def scaled(values: Values) -> Values:
        data = to_floats(values).data
        return values.with_data(np.where(np.isnan(data), np.nan, 0.5) if low == high else (data - low) / (high - low))

    return scaled
