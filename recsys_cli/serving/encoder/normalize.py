"""Normalize on NumPy; NaN passes through."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from recsys_cli.ops import Normalize
from recsys_cli.serving.encoder.values import Apply, Types, Values, caster, mapped, retype


def compiled(op: Normalize, state: Mapping[str, pa.Table], types: Types) -> Apply:
    """Standardize the columns to mean 0 and standard deviation 1."""
    for name in op.columns:
        retype(types, name, pa.float64())
    return mapped({name: _standardized(**state[name].select(["mean", "std"]).to_pylist()[0]) for name in op.columns})


def _standardized(mean: float, std: float) -> Callable[[Values], Values]:
    to_floats = caster(pa.float64())

    def standardized(values: Values) -> Values:
        deviations = to_floats(values).data - mean
        return values.with_data(deviations / std if std > 0 else deviations)

    return standardized
