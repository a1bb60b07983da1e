"""Clip on NumPy; NaN passes through."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops import Clip
from recsys_cli.ops.numeric import calculated_type
from recsys_cli.serving.encoder.values import Apply, Types, Values, caster, element, mapped, numpy_type, retype


def compiled(op: Clip, state: Mapping[str, pa.Table], types: Types) -> Apply:  # noqa: ARG001 - stateless op
    """Clip values to `min_value` and `max_value`."""
    functions = {}
    for name in op.columns:
        kind = calculated_type(element(types[name]), op.min_value, op.max_value)
        functions[name] = _clipped(op, kind)
        retype(types, name, kind)
    return mapped(functions)


def _clipped(op: Clip, kind: pa.DataType) -> Callable[[Values], Values]:
    cast, dtype = caster(kind), numpy_type(kind).type
    low, high = (None if bound is None else dtype(bound) for bound in (op.min_value, op.max_value))

    def clipped(values: Values) -> Values:
        values = cast(values)
        data = values.data if low is None else np.maximum(values.data, low)
        return values.with_data(data if high is None else np.minimum(data, high), values.nulls)

    return clipped
