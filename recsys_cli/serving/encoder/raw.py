"""Values of a request, as JSON or NumPy has them, in the raw types of the plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.features.spec import is_list
from recsys_cli.serving.encoder.convert import EXACT, converter
from recsys_cli.serving.encoder.values import Array, Values, stored

Read = Callable[[Sequence[Any] | Array], Values]

_WRONG = (ValueError, TypeError, OverflowError, pa.ArrowException)


def reader(name: str, kind: pa.DataType) -> Read:
    """Return the conversion of a column of requests.

    Args:
        name: Column name, for errors.
        kind: Raw type.
    """
    if is_list(kind):
        return _list_reader(name, kind)
    dtype, convert = stored(kind), converter(kind)

    def read(values: Sequence[Any] | Array) -> Values:
        if isinstance(values, np.ndarray):
            if values.ndim == 1 and (fast := _from_numpy(values, kind, dtype)) is not None:
                return fast
            values = values.tolist()
        _check_sequence(name, values)
        converted = []
        for row, value in enumerate(values):
            try:
                converted.append(None if value is None else convert(value))
            except _WRONG as error:
                raise _wrong(name, kind, row, value, error) from error
        return _packed(converted, dtype)

    return read


def _list_reader(name: str, kind: pa.DataType) -> Read:
    held = kind.value_type
    held = held.value_type if pa.types.is_dictionary(held) else held
    dtype, convert = stored(held), converter(held)

    def read(values: Sequence[Any] | Array) -> Values:
        if isinstance(values, np.ndarray):
            values = list(values)
        _check_sequence(name, values)
        converted, ends = [], [0]
        for row, listed in enumerate(values):
            for value in _elements(name, kind, row, listed):
                try:
                    converted.append(None if value is None else convert(value))
                except _WRONG as error:
                    raise _wrong(name, kind, row, value, error) from error
            ends.append(len(converted))
        packed = _packed(converted, dtype)
        return Values(packed.data, packed.nulls, np.array(ends, dtype=np.int64))

    return read


def _elements(name: str, kind: pa.DataType, row: int, listed: Any) -> Sequence[Any]:
    if listed is None or (isinstance(listed, float) and math.isnan(listed)):
        return ()
    if isinstance(listed, np.ndarray):
        return list(listed.tolist())
    if isinstance(listed, list | tuple):
        return listed
    raise _wrong(name, kind, row, listed, TypeError("a list is expected"))


def _check_sequence(name: str, values: Any) -> None:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__") or isinstance(values, dict):
        raise DataError(
            f"column {name}: {values!r} is no column of values", hint="give a list with one value for each row"
        )


def _wrong(name: str, kind: pa.DataType, row: int, value: Any, error: Exception) -> DataError:
    shown = repr(value) if len(repr(value)) <= 100 else f"{repr(value)[:100]}…"
    reason = str(error) if type(error) in {ValueError, TypeError} else f"it does not fit {kind}"
    return DataError(
        f"row {row + 1}, column {name}: {shown} is no {kind}: {reason}", hint=f"give {name} as {kind}, or null"
    )


def _packed(converted: list[Any], dtype: np.dtype[Any]) -> Values:
    """Return converted values, None for null, as an array with a null mask."""
    nulls = None
    if None in converted:
        nulls = np.array([value is None for value in converted])
    if dtype.kind == "O":
        data = np.empty(len(converted), dtype=object)
        data[:] = converted
        return Values(data, nulls)
    if nulls is None:
        return Values(np.array(converted, dtype=dtype))
    if dtype.kind == "f":
        return Values(np.array([math.nan if value is None else value for value in converted], dtype=dtype))
    return Values(np.array([0 if value is None else value for value in converted], dtype=dtype), nulls)


def _from_numpy(values: Array, kind: pa.DataType, dtype: np.dtype[Any]) -> Values | None:
    """Convert an array of numbers or times at once; None if it has to be read value by value."""
    given = values.dtype.kind
    types = pa.types
    if types.is_floating(kind) and given in "iufb":
        return Values(values.astype(dtype))
    if types.is_timestamp(kind) and given == "M":
        absent = np.isnat(values)
        ticks = values.astype(f"M8[{kind.unit}]").astype(np.int64)
        return Values(np.where(absent, 0, ticks), absent) if absent.any() else Values(ticks)
    if not types.is_integer(kind) or given not in "iufb":
        return None
    missing = np.isnan(values) if given == "f" else None
    nulls = missing if missing is not None and missing.any() else None
    filled = values if nulls is None else np.where(nulls, 0, values)
    ends = np.iinfo(dtype)
    if given == "f" and not ((np.abs(filled) < EXACT) & (filled == np.trunc(filled))).all():
        return None
    if len(filled) and not ends.min <= int(filled.min()) <= int(filled.max()) <= ends.max:
        return None
    return Values(filled.astype(dtype), nulls)
