"""ReduceDtypeSize on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops import ReduceDtypeSize
from recsys_cli.ops.numeric import calculated_type
from recsys_cli.ops.reduce_dtype_size import reduced
from recsys_cli.serving.encoder.values import Apply, Types, Values, caster, element, mapped, numpy_type, retype


def compiled(op: ReduceDtypeSize, state: Mapping[str, pa.Table], types: Types) -> Apply:
    """Cast the columns to the smallest types for the values of train."""
    functions = {}
    for name in op.columns:
        kind = calculated_type(element(types[name]))
        dtype = "float32" if pa.types.is_floating(kind) else reduced(state[name])
        functions[name] = _single if pa.types.is_floating(kind) else _smaller(kind, dtype)
        retype(types, name, pa.type_for_alias(dtype))
    return mapped(functions)


def _single(values: Values) -> Values:
    return values.with_data(caster(pa.float64())(values).data.astype(np.float32))


def _smaller(kind: pa.DataType, dtype: str) -> Callable[[Values], Values]:
    cast, wide = caster(kind), numpy_type(kind).type
    low, high = wide(0 if kind == pa.uint64() else np.iinfo(dtype).min), wide(np.iinfo(dtype).max)

    def smaller(values: Values) -> Values:
        data = np.clip(cast(values).data, low, high).astype(dtype)
        return values.with_data(data if values.nulls is None else np.where(values.nulls, data.dtype.type(0), data))

    return smaller
