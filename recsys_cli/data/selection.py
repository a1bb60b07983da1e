"""Rows and files to read: columns in the names of folders, as in plays/dt=2026-01-31/part-0.parquet, and rows since a moment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from recsys_cli.data.raw_files import RawFile, is_url, without_protocol
from recsys_cli.data.source import RawTable, RawType
from recsys_cli.errors import ConfigError, DataError, listed
from recsys_cli.packages import pa, pc
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
    """Return the least value of a column's rows since a moment, or in a time span before the greatest value `newest`.

    With `is_time`, numbers of the column are seconds since 1970.

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


_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE, _DAY = re.compile(r"-?(0|[1-9]\d{0,17})"), re.compile(r"\d{4}-\d{2}-\d{2}")
_ALIASES = {"timestamp": "timestamp[us]", "timestamp with zone": "string"}


def with_partitions(table: RawTable, patterns: Sequence[str], types: Mapping[str, RawType]) -> RawTable:
    """Return a table with the partition columns of its folders, without the files before `since`.

    Of the patterns only the folders below a folder are partitions. Without a declared type, whole numbers are int64, ISO dates
    timestamps, and others strings.

    Raises:
        ConfigError: `since` does not fit the column.
        DataError: Files differ in their partition columns, or no file is left.
    """
    folders = [_folder(pattern) for pattern in patterns]
    of_files = [_values(str(file), folders) for file in table.files]
    names = list(of_files[0])
    for file, values in zip(table.files, of_files, strict=True):
        if list(values) != names:
            raise DataError(
                f"table {table.name!r}: {file} has the partition columns {', '.join(values) or '(none)'}, "
                f"and {table.files[0]} {', '.join(names) or '(none)'}",
                hint="all files of a folder need the same name=value folders in the same order",
            )
    if not names:
        return table
    columns = {name: _typed(name, [values[name] for values in of_files], types.get(name)) for name in names}
    if timed := [column.name for column in table.columns if column.name in columns and column.time is not None]:
        raise ConfigError(
            f"table {table.name!r}: times has {', '.join(timed)}, a partition column",
            hint="its values are ISO dates, whole numbers or text; LambdaOp computes with them",
        )
    in_files = tuple(column for column in table.columns if column.name not in columns)
    return _pruned(replace(table, columns=in_files), columns)


def _pruned(table: RawTable, columns: Mapping[str, pa.Array]) -> RawTable:
    """Keep the files since the moment of the partition columns in `since`."""
    keep = pa.array([True] * len(table.files))
    for name, value in table.since.items():
        if name in columns:
            newest = pc.max(columns[name]) if span(value) is not None else None
            limit = least(name, value, columns[name].type, newest=newest, is_time=False)
            keep = pc.and_(keep, mask(columns[name], limit))
    files = tuple(file for file, new in zip(table.files, keep.to_pylist(), strict=True) if new)
    if not files:
        raise nothing_new(table.name, table.since)
    rest = {name: value for name, value in table.since.items() if name not in columns}
    return replace(
        table, files=files, since=rest, partitions={name: values.filter(keep) for name, values in columns.items()}
    )


def constants(table: RawTable) -> dict[RawFile, dict[str, pa.Scalar]]:
    """Return the values of the partition columns by file."""
    return {
        file: {name: values[row] for name, values in table.partitions.items()} for row, file in enumerate(table.files)
    }


def _folder(pattern: str) -> str | None:
    """Return the prefix of the files below a folder; None for globs and files."""
    if is_url(pattern):
        return pattern.rstrip("/") + "/"
    pattern = without_protocol(pattern)
    return f"{Path(pattern)}/" if Path(pattern).is_dir() else None


def _values(file: str, folders: Sequence[str | None]) -> dict[str, str | None]:
    below = next((file.removeprefix(folder) for folder in folders if folder and file.startswith(folder)), "")
    pairs = (part.partition("=") for part in below.split("/")[:-1] if "=" in part)
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in pairs}


def _typed(name: str, texts: Sequence[str | None], declared: RawType | None) -> pa.Array:
    given = [text for text in texts if text is not None]
    kind = pa.string()
    if declared is not None:
        kind = pa.type_for_alias(_ALIASES.get(declared, declared))
    elif given and all(_WHOLE.fullmatch(text) for text in given):
        kind = pa.int64()
    elif given and all(_DAY.fullmatch(text) for text in given):
        kind = pa.timestamp("us")
    try:
        return pa.array(texts, pa.string()).cast(kind)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"partition column {name} cannot be read as {kind}: {error}", hint=f"set types: {{{name}: string}}"
        ) from error
