"""ListSlice on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops import ListSlice
from recsys_cli.serving.encoder.values import Apply, Array, Types, Values, element, mapped, retype


def compiled(op: ListSlice, state: Mapping[str, pa.Table], types: Types) -> Apply:  # noqa: ARG001 - stateless op
    """Slice, and optionally pad, the lists."""
    for name in op.columns:
        retype(types, name, element(types[name]))
    return mapped(dict.fromkeys(op.columns, _slicer(op)))


def _slicer(op: ListSlice) -> Callable[[Values], Values]:
    first, last = op.bounds

    def sliced(values: Values) -> Values:
        assert values.offsets is not None
        lengths = np.diff(values.offsets)
        start = _clamped(first, lengths)
        sizes = np.maximum((lengths if last is None else _clamped(last, lengths)) - start, 0)
        ends = np.cumsum(sizes)
        taken = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
            values.offsets[:-1] + start - (ends - sizes), sizes
        )
        data = values.data[taken]
        nulls = None if values.nulls is None else values.nulls[taken]
        if op.pad and op.size is not None:
            return _padded(data, nulls, sizes, op.size, op.pad_value)
        return Values(data, nulls, np.concatenate(([0], ends)))

    return sliced


def _clamped(position: int, lengths: Array) -> Array:
    """Return list positions from the start, clamped to the lists."""
    return np.maximum(lengths + position, 0) if position < 0 else np.minimum(lengths, position)


def _padded(data: Array, nulls: Array | None, sizes: Array, size: int, value: float) -> Values:
    rows = len(sizes)
    into = (np.arange(size) < sizes[:, None]).ravel()
    padded = np.full(rows * size, value).astype(data.dtype)
    padded[into] = data
    mask = None
    if nulls is not None:
        mask = np.zeros(rows * size, dtype=bool)
        mask[into] = nulls
    return Values(padded, mask, np.arange(rows + 1, dtype=np.int64) * size)
