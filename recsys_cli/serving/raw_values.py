"""Values of a request, as JSON or NumPy has them, in the raw types of the plan."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.features.schema import TICKS
from recsys_cli.features.spec import cast_ids, is_list, is_text
from recsys_cli.ops.values import Array, Values, element, from_arrow, numpy_type, stored

EXACT = 2**53
"""Floats below have no rounded whole number."""
Convert = Callable[[Any], Any]
"""Conversion of one value, not null or NaN, to its stored form. Raises ValueError or TypeError for other values."""

_ZONE = re.compile(r" ?(Z|UTC|GMT)$")
_SPACED_OFFSET = re.compile(r" ([+-]\d{2}(:?\d{2})?)$")
_OFFSET = re.compile(r":\d{2}(\.\d+)?[+-]\d{2}(:?\d{2})?$")


def converter(kind: pa.DataType, how: str = "iso") -> Convert:
    """Return the conversion of values to a raw type, and of times as text also in their format; of list elements for their type."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_boolean(kind):
        return _truth
    if types.is_integer(kind):
        return _whole(kind)
    if types.is_floating(kind):
        return _real
    if types.is_null(kind):
        return _nothing
    if types.is_timestamp(kind):
        return _time(kind, how)
    if is_text(kind):
        return _bytes if types.is_binary(kind) or types.is_large_binary(kind) else _text
    if types.is_decimal(kind):
        return _decimal(kind)
    return _of_arrow(kind)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating) and math.isnan(value)


def _whole(kind: pa.DataType) -> Convert:
    ends = np.iinfo(numpy_type(kind))
    low, high = int(ends.min), int(ends.max)

    def whole(value: Any) -> int:
        if type(value) is not int:
            if isinstance(value, str):
                value = int(pa.scalar(value, pa.string()).cast(kind).as_py())
            elif not isinstance(value, np.integer) and not (
                isinstance(value, float | np.floating) and -EXACT < value < EXACT and value == int(value)
            ):
                raise TypeError("a whole number is expected; floats of 2**53 or more are inexact")
        if not low <= value <= high:
            raise ValueError(f"the range is {low} to {high}")
        return int(value)

    return whole


def _real(value: Any) -> float:
    if isinstance(value, str):
        return float(pa.scalar(value, pa.string()).cast(pa.float64()).as_py())
    if isinstance(value, float | int | np.number | Decimal) and not isinstance(value, bool):
        return float(value)
    raise TypeError("a number is expected")


def _truth(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str):
        return bool(pa.scalar(value, pa.string()).cast(pa.bool_()).as_py())
    if isinstance(value, int | float | np.number) and value in {0, 1}:
        return bool(value)
    raise TypeError("true or false is expected")


def _text(value: Any) -> str:
    if isinstance(value, str):
        if not value.isascii():
            value.encode()  # refuses lone surrogates, which JSON allows and UTF-8 does not
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    raise TypeError("text is expected")


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError("text is expected")


def _nothing(_: Any) -> None:
    raise ValueError("train has no value in this column, so only null fits")


def _decimal(kind: pa.DataType) -> Convert:
    def decimal(value: Any) -> Decimal:
        exact = value if isinstance(value, Decimal) else Decimal(str(value))
        converted: Decimal = pa.scalar(exact).cast(kind).as_py()
        return converted

    return decimal


def _of_arrow(kind: pa.DataType) -> Convert:
    """Return the conversion of dates, times of day and durations: by Arrow, or the stored integer."""

    def convert(value: Any) -> int:
        if type(value) is int or isinstance(value, np.integer):
            return _stored_integer(value)
        scalar = pa.scalar(value, pa.string()).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)
        return int(scalar.value)

    return convert


def _time(kind: pa.DataType, how: str) -> Convert:
    """Return the conversion to a timestamp: text, a datetime (UTC without a zone), or a number in the unit of the type."""
    unit = kind.unit

    def time(value: Any) -> int | None:
        if type(value) is int:
            return _stored_integer(value)
        if isinstance(value, str):
            return _of_text(value, unit, how)
        if isinstance(value, np.datetime64):
            return None if np.isnat(value) else int(value.astype(f"M8[{unit}]").astype(np.int64))
        if isinstance(value, datetime.date):
            return _moment(value, unit)
        if isinstance(value, np.integer) or (isinstance(value, float | np.floating) and value == int(value)):
            return _stored_integer(value)
        raise TypeError(f"a time such as 2026-01-31 12:00:00 is expected, or a number of {unit} since 1970")

    return time


def _stored_integer(value: Any) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError("the range is that of int64")
    return int(value)


def _of_text(text: str, unit: str, how: str) -> int:
    """Return the ticks of a time in a format of the raw data, or in ISO 8601."""
    given = how.rsplit(" ", maxsplit=1)[-1]
    try:
        if given in TICKS:
            return _stored_integer(round(Decimal(text) * (TICKS[unit] // TICKS[given])))
        return _moment(datetime.datetime.strptime(text, how), unit) if "%" in how else _iso(text, unit)
    except (ValueError, ArithmeticError):
        return _iso(text, unit)


def _iso(text: str, unit: str) -> int:
    """Return the ticks of an ISO time in the forms that files may have, such as 2019-10-01 12:00:00 UTC."""
    text = _SPACED_OFFSET.sub(r"\1", _ZONE.sub("", text) if text[:1].isdigit() else text)
    zone = "UTC" if _OFFSET.search(text) else None
    return int(pa.scalar(text, pa.string()).cast(pa.timestamp(unit, zone)).value)


def _moment(value: datetime.date, unit: str) -> int:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return int(np.datetime64(value, "us").astype(f"M8[{unit}]").astype(np.int64))


Read: TypeAlias = "Callable[[Sequence[Any] | Array], Values]"

_WRONG = (ValueError, TypeError, OverflowError, pa.ArrowException)


def reader(name: str, kind: pa.DataType, *, is_id: bool = False, how: str = "iso") -> Read:
    """Return the conversion of a column of requests.

    Args:
        name: Column name, for errors.
        kind: Raw type.
        is_id: Whether values are ids: an empty text is null, as in raw data, and all spellings of `cast_ids` are read.
        how: Format of times at fit time, see `time_formats`.
    """
    held, ragged = element(kind), is_list(kind)
    dtype, convert = stored(held), _id(held) if is_id else converter(held, how)

    def converted(row: int, value: Any) -> Any:
        try:
            return None if value is None or _is_nan(value) else convert(value)
        except _WRONG as error:
            raise _wrong(name, kind, row, value, error) from error

    def read(values: Sequence[Any] | Array) -> Values:
        if isinstance(values, np.ndarray):
            if values.ndim == 1 and not ragged and (fast := _from_numpy(values, kind, dtype)) is not None:
                return fast
            values = list(values) if ragged else values.tolist()
        if isinstance(values, str | bytes) or not hasattr(values, "__len__") or isinstance(values, dict):
            what = f"column {name}: {values!r} is no column of values"
            raise DataError(what, hint="give a list with one value for each row")
        if not ragged:
            return _packed([converted(row, value) for row, value in enumerate(values)], dtype)
        lists = [[converted(row, one) for one in _elements(name, kind, row, each)] for row, each in enumerate(values)]
        packed = _packed(list(chain.from_iterable(lists)), dtype)
        return packed._replace(offsets=np.cumsum([0, *map(len, lists)], dtype=np.int64))

    return read


def _id(kind: pa.DataType) -> Convert:
    convert = converter(kind)

    def convert_id(value: Any) -> Any:
        try:
            return None if isinstance(value, str) and not value else convert(value)
        except _WRONG:  # nearly no value, and a cast takes ten times the time
            is_rounded = isinstance(value, float) and abs(value) >= EXACT
            if is_rounded or (given := cast_ids([value], kind)).null_count:
                raise
            return from_arrow(given).data[0]

    return convert_id


def _elements(name: str, kind: pa.DataType, row: int, listed: Any) -> Sequence[Any]:
    if listed is None or (isinstance(listed, float) and math.isnan(listed)):
        return ()
    if isinstance(listed, np.ndarray):
        return list(listed.tolist())
    if isinstance(listed, list | tuple):
        return listed
    raise _wrong(name, kind, row, listed, TypeError("a list is expected"))


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
