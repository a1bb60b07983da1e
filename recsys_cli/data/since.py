"""Rows since a moment: the option `since` of a table, as the least value of a column."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import ConfigError, DataError, listed
from recsys_cli.registry import suggest

SinceValue = int | float | str
"""A number, an ISO date or time (UTC without a zone), or a time span before the newest row, such as "30d"."""

_SPAN = re.compile(r"(\d+) ?(s|min|h|d|w)")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def span(value: SinceValue) -> timedelta | None:
    """Return the time span of a value such as "30d"; None for other values."""
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})


def check(value: SinceValue) -> None:
    """Check a value.

    Raises:
        ValueError: A string is neither a time nor a time span.
    """
    try:
        if isinstance(value, str) and span(value) is None:
            _moment(value)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{value!r} is neither a number, a date or time such as 2026-01-31, nor a time span such as 30d "
            f"(units: {', '.join(_UNITS)})"
        ) from None


def check_columns(table: str, since: Mapping[str, SinceValue], columns: Sequence[str]) -> None:
    """Check that a table has the columns of `since`.

    Raises:
        ConfigError: It lacks one.
    """
    for name in since:
        if name not in columns:
            raise ConfigError(
                f"since: no column {name!r} in table {table!r}{suggest(name, columns)}; there are {listed(columns)}",
                hint="set the key in since to a column of the table",
            )


def least(name: str, value: SinceValue, kind: pa.DataType, *, newest: pa.Scalar | None, is_time: bool) -> pa.Scalar:
    """Return the least value of a column's rows since a moment.

    Args:
        name: Name of the column, for errors.
        value: The option's value.
        kind: Type of the column.
        newest: Greatest value of the column, for a time span.
        is_time: Whether numbers of the column are seconds since 1970.

    Raises:
        ConfigError: The value does not fit the column.
    """
    period = span(value)
    if newest is not None and not newest.is_valid:
        return newest
    if pa.types.is_timestamp(kind) and isinstance(value, str):
        if period is None:
            return pa.scalar(_moment(value).replace(tzinfo=None), pa.timestamp("us")).cast(kind)
        return pc.subtract(newest, pa.scalar(period, pa.duration("us")).cast(pa.duration(kind.unit)))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if not isinstance(value, str):
            return pa.scalar(value)
        if is_time:
            return pa.scalar(_moment(value).timestamp() if newest is None else newest.as_py() - _seconds(period))
    elif pa.types.is_string(kind) and isinstance(value, str) and period is None:
        return pa.scalar(value)
    raise ConfigError(
        f"since: {{{name}: {value}}} does not fit column {name} of type {kind}",
        hint=f"times need a time column (times: {{{name}: s}} next to the files gives numbers their unit); "
        f"numbers need a column of numbers (types: {{{name}: int64}})",
    )


def mask(values: Any, limit: pa.Scalar) -> Any:
    """Return which values reach a limit; nulls do not."""
    return pc.fill_null(pc.greater_equal(values, limit), False)


def may_be_new(
    table: str, since: Mapping[str, SinceValue], greatest: Mapping[str, Sequence[Any]], schema: pa.Schema
) -> list[bool]:
    """Return which files of a table may have rows since a moment, by the greatest values of their columns.

    A column without the value of each file, or of numbers with a time, says nothing about the files.

    Raises:
        ConfigError: A value does not fit its column.
        DataError: No file has such rows.
    """
    keep = None
    for name, value in since.items():
        kind = schema.field(name).type if name in schema.names else pa.null()
        is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        is_unclear = isinstance(value, str) and not (is_time or pa.types.is_string(kind))
        if is_unclear or None in greatest.get(name, [None]):
            continue
        tops = pa.array(greatest[name], kind)
        if is_time:
            tops = tops.cast(pa.timestamp("us"))
        limit = least(name, value, tops.type, newest=pc.max(tops), is_time=False)
        # Statistics of Delta are cut to milliseconds.
        new = mask(pc.add(tops, pa.scalar(1_000, pa.duration("us"))) if is_time else tops, limit)
        keep = new if keep is None else pc.and_(keep, new)
    if keep is None:
        return [True] * max(map(len, greatest.values()), default=0)
    if not pc.any(keep).as_py():
        raise nothing_new(table, since)
    flags: list[bool] = keep.to_pylist()
    return flags


def nothing_new(table: str, since: Mapping[str, SinceValue]) -> DataError:
    """Return the error for a table without rows since the moment."""
    limits = ", ".join(f"{name}: {value}" for name, value in since.items())
    return DataError(f"table {table!r} has no rows since {{{limits}}}", hint="set an earlier since, or remove it")


def _seconds(period: timedelta | None) -> float:
    return 0.0 if period is None else period.total_seconds()


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
