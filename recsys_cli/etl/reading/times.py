"""Time columns: strings in ISO 8601 or another format, and numbers in s, ms, µs or ns since 1970.

The format is detected once, in the first rows of the first file, independent of chunks; an option overrides it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.source import RawColumn
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.reading.rows import is_number
from recsys_cli.features.schema import TICKS

if TYPE_CHECKING:  # `validate` of numbers needs no Polars
    import polars as pl

DETECT = "detect"
"""Format of a time column before detection."""
_ISO, _FINE_ISO = "iso", "iso ns"
CLEAR = frozenset({_ISO, _FINE_ISO, "s", "int64 s", "float64 s"})
"""Formats that later rows show themselves."""
_FORMAT_SAMPLE = 10_000
"""Number of strings for format detection; the order of day and month uses the whole sample."""

# Years 1990 to 2103, to exclude dates in digits such as 201910010233 from ms.
_RANGES = {unit: (63 * TICKS[unit] * 10**7, 42 * TICKS[unit] * 10**8) for unit in ("s", "ms", "us", "ns")}
_ISO_SHAPE = (
    r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?( ?(Z|UTC|GMT|[+-]\d{2}(:?\d{2})?))?)?$"  # e.g. 2019-10-01
)
_WHOLE, _REAL = r"^[+-]?\d+$", r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_CLOCKS = {
    "": "", " %H:%M": r" \d{1,2}:\d{2}", " %H:%M:%S": r" \d{1,2}:\d{2}:\d{2}", " %H:%M:%S.%f": r" \d{1,2}:\d{2}:\d{2}\.\d{1,9}",
    " %I:%M %p": r" \d{1,2}:\d{2} [AaPp][Mm]", " %I:%M:%S %p": r" \d{1,2}:\d{2}:\d{2} [AaPp][Mm]",
}  # fmt: skip
_DATES = {
    **{f"%m{s}%d{s}%Y": rf"\d{{1,2}}[{s}]\d{{1,2}}[{s}]\d{{4}}" for s in "/.-"},
    **{f"%Y{s}%m{s}%d": rf"\d{{4}}[{s}]\d{{1,2}}[{s}]\d{{1,2}}" for s in "/."},
    "%d %b %Y": r"\d{1,2} [A-Za-z]{3} \d{4}", "%d-%b-%Y": r"\d{1,2}-[A-Za-z]{3}-\d{4}", "%b %d, %Y": r"[A-Za-z]{3} \d{1,2}, \d{4}",
}  # fmt: skip
_SHAPES = {
    "int64": _WHOLE,
    "float64": _REAL,
    _ISO: _ISO_SHAPE,
    **{day + clock: f"^{days}{clocks}$" for day, days in _DATES.items() for clock, clocks in _CLOCKS.items()},
    "%m %d, %Y": r"^\d{1,2} \d{1,2}, \d{4}$",
    "%a %b %d %H:%M:%S %z %Y": r"^[A-Za-z]{3} [A-Za-z]{3} \d{1,2} \d{2}:\d{2}:\d{2} [+-]\d{4} \d{4}$",
    "%a, %d %b %Y %H:%M:%S %z": r"^[A-Za-z]{3}, \d{1,2} [A-Za-z]{3} \d{4} \d{2}:\d{2}:\d{2} [+-]\d{4}$",
    "%a, %d %b %Y %H:%M:%S GMT": r"^[A-Za-z]{3}, \d{1,2} [A-Za-z]{3} \d{4} \d{2}:\d{2}:\d{2} GMT$",
}


class NotATimeError(pa.ArrowInvalid):
    """A string in another format than its column."""


def detection(known: str | None) -> str:
    """Return the format for later rows: as detected, but as `known` from earlier rows where their own is ambiguous."""
    return f"{DETECT} {known}" if known else DETECT


def _with_known(how: str | None) -> tuple[str | None, str | None]:
    word, _, known = str(how).partition(" ")
    return (DETECT, known) if word == DETECT else (how, None)


def typed_column(column: RawColumn, sample: pa.ChunkedArray, where: str) -> RawColumn:
    """Return a time column of a text file with its type and format, from its first values as strings."""
    texts = _non_empty(sample)
    if column.separator is not None:
        return replace(column, time=None)
    how, known = _with_known(column.time)
    if "%" in str(how):
        return replace(column, dtype="string")
    if column.dtype in {"timestamp", "timestamp with zone"}:
        fine = len(texts) and _matches(texts, r"\.\d{7,9}(\D|$)")
        return replace(column, dtype="string", time=_FINE_ISO) if fine else replace(column, time=None)
    if how == DETECT and column.dtype == "string":
        how = text_format(texts, where, column.name, known)
    if how in {None, "int64", "float64"}:
        how = DETECT
    if how not in {DETECT, *TICKS}:  # a string format, detected or declared
        return replace(column, dtype="string", time=how)
    if column.dtype == "string":
        column = replace(column, dtype=_number_type(texts))
    return replace(column, time=unit_of(_as_numbers(texts), known) if how == DETECT else how)


def _number_type(texts: pa.ChunkedArray) -> Literal["int64", "float64"]:
    return "int64" if 2 * _matches(texts, _WHOLE) >= len(texts) else "float64"


def _as_numbers(texts: pa.ChunkedArray) -> np.ndarray:
    return texts.filter(pc.match_substring_regex(texts, _REAL)).cast(pa.float64()).to_numpy()


def unit_of(numbers: np.ndarray, known: str | None = None) -> str | None:
    """Return the unit of numbers since 1970 if ms, µs or ns, else None; that of a known format for no time from 1990 to 2103."""
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    middle = float(np.median(sizes)) if len(sizes) else 0.0
    last = str(known).rsplit(" ", maxsplit=1)[-1]
    unit = next((unit for unit, (low, high) in _RANGES.items() if low <= middle < high), last)
    return unit if unit in {"ms", "us", "ns"} else None


def text_format(texts: pa.ChunkedArray, where: str, name: str, known: str | None = None) -> str | None:
    """Return the format of most strings: `iso`, `iso ns`, `int64`, `float64` or strptime; None for no strings.

    Day and month have the order of a known format of their separator.

    Raises:
        DataError: No format matches, or the order of day and month is ambiguous.
    """
    sample = texts.slice(0, _FORMAT_SAMPLE)
    if not len(sample):
        return None
    matches = {how: _matches(sample, shape) for how, shape in _SHAPES.items()}
    best = max(matches, key=lambda how: matches[how])
    if 2 * matches[best] < len(sample):
        raise DataError(
            f"{where}: column {name}, the time of the interactions, has strings that are not times, "
            f"such as {sample[0].as_py()!r}",
            hint=_hint(name, "%d.%m.%Y %H:%M"),
        )
    if best == _ISO and _matches(sample, r"\.\d{7,9}(\D|$)"):
        return _FINE_ISO
    if not re.match("%m[/.-]%d", best):
        return best
    other = best.replace("%m", "%x").replace("%d", "%m").replace("%x", "%d")
    same = (how for how in (best, other) if str(known).startswith(how[:5]))
    return next(same, None) or _day_or_month(texts, best, other, where, name)


def _day_or_month(texts: pa.ChunkedArray, how: str, other: str, where: str, name: str) -> str:
    """Return the format with the order of day and month by numbers above 12."""
    day, month = r"(1[3-9]|2\d|3[01])", r"(0?[1-9]|1[0-2])"
    day_first, month_first = (_matches(texts, rf"^{one}\D{two}\D") for one, two in ((day, month), (month, day)))
    if day_first != month_first:
        return other if day_first > month_first else how
    text = texts[0].as_py()
    raise DataError(
        f"{where}: column {name} has dates such as {text!r}: day and month are ambiguous in the first rows",
        hint=f"{_hint(name, how)} (month first), or {{{name}: '{other}'}}",
    )


def _hint(name: str, how: str) -> str:
    return f"set the time format next to the table's files: times: {{{name}: '{how}'}}"


def _non_empty(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = texts.cast(pa.string()).drop_null()
    return texts.filter(pc.not_equal(texts, ""))


def _matches(texts: pa.ChunkedArray, shape: str) -> int:
    return int(pc.sum(pc.match_substring_regex(texts, shape)).as_py() or 0)


def stored_type(values: pa.ChunkedArray, how: str, where: str, name: str) -> tuple[str | None, pa.DataType]:
    """Return the time format of a Parquet column, and the type of its times, from its first values, of a plain type."""
    kind = values.type
    found, known = _with_known(how)
    if pa.types.is_string(kind):
        texts = _non_empty(values)
        detected = text_format(texts, where, name, known) if found == DETECT else found
        if detected in {None, "int64", "float64", *TICKS}:  # numbers as strings
            unit = detected if detected in TICKS else unit_of(_as_numbers(texts), known) or "s"
            detected = f"{_number_type(texts)} {unit}"
        return detected, to_times(pa.chunked_array([], kind), str(detected)).type
    if not is_number(kind):
        return None, kind
    if found == DETECT:
        how = unit_of(values.drop_null().to_numpy().astype(np.float64), known) or "s"
    return how, to_times(pa.chunked_array([], pa.int64() if kind == pa.uint64() else kind), how).type


def read_times(values: pa.ChunkedArray, how: str, *, file: str, name: str, first: int) -> pa.ChunkedArray:
    """Convert a Parquet column to times; `first` is the row number of its first value in the file."""
    try:
        return to_times(values, how)
    except NotATimeError:
        texts = values.to_pylist()
        bad = next(row for row, text in enumerate(texts) if text and not is_time(text, how))
        raise DataError(
            f"{file}: row {first + bad + 1}, column {name}: {texts[bad]!r} is not {described(how)}",
            hint=_hint(name, "iso"),
        ) from None
    except pa.ArrowInvalid as error:
        raise DataError(f"{file}: column {name} cannot be read as a time: {error}", hint=_hint(name, "s")) from error


def to_times(values: pa.ChunkedArray, how: str) -> pa.ChunkedArray:
    """Convert strings or numbers to timestamps in UTC without a zone; numbers of seconds stay numbers.

    `how` is a time format of `RawColumn.time`, not DETECT.

    Raises:
        NotATimeError: A string has another format.
        ConfigError: The format is invalid.
    """
    if pa.types.is_string(values.type):
        import polars as pl

        # Polars, because if_else of Arrow 14 returns zeros for the strings of a slice.
        texts = pl.Series(pl.from_arrow(values))
        texts = texts.set(texts == "", None)
        if how.startswith(("int64 ", "float64 ")):
            dtype, how = how.split(" ")
            values = pa.chunked_array([_cast(texts, pa.type_for_alias(dtype))])
        elif how in {_ISO, _FINE_ISO}:
            return _iso(texts, "us" if how == _ISO else "ns")
        else:
            return _formatted(texts, how)
    if how not in TICKS or how == "s" or not is_number(values.type):
        return values
    if pa.types.is_floating(values.type):
        return _of_floats(values, how)
    return values.cast(pa.int64()).cast(pa.timestamp(how))


def as_stored(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert times to those of another type: numbers are seconds since 1970.

    Raises:
        pa.ArrowException: A time does not fit.
    """
    if pa.types.is_timestamp(kind) and is_number(values.type):
        is_real = pa.types.is_floating(values.type)
        values = _of_floats(values, "s") if is_real else values.cast(pa.int64()).cast(pa.timestamp("s"))
    elif pa.types.is_timestamp(values.type) and is_number(kind):
        values = pc.divide(values.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6)
        values = values if pa.types.is_floating(kind) else pc.floor(values)
    # Times may have a finer unit.
    return values.cast(kind, safe=not pa.types.is_timestamp(values.type))


def _of_floats(values: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    """Round to the next finer unit, the precision of a float64 of this size."""
    finer = {"s": "us", "ms": "us", "us": "ns", "ns": "ns"}[unit]
    numbers = values.cast(pa.float64()).to_numpy()
    valid = np.isfinite(numbers) & (np.abs(numbers) * (TICKS[finer] // TICKS[unit]) < 2.0**63)
    ticks = np.rint(np.where(valid, numbers, 0.0) * (TICKS[finer] // TICKS[unit])).astype(np.int64)
    return pa.chunked_array([pa.array(ticks, mask=~valid).cast(pa.timestamp(finer))])


def _iso(texts: pl.Series, unit: str) -> pa.ChunkedArray:
    texts = texts.str.replace(r"^(\d.*?) ?(Z|UTC|GMT)$", "${1}").str.replace(r" ([+-]\d{2}(:?\d{2})?)$", "${1}")
    zoned = texts.str.contains(r":\d{2}(\.\d+)?[+-]\d{2}(:?\d{2})?$")
    times = _cast(texts.set(zoned, None), pa.timestamp(unit))
    if zoned.any():
        utc = _cast(texts.set(~zoned, None), pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit))
        times = pc.coalesce(times, utc)
    return pa.chunked_array([times])


def _formatted(texts: pl.Series, how: str) -> pa.ChunkedArray:
    import polars as pl

    zone = "UTC" if "%z" in how else None
    try:
        times = texts.str.to_datetime(how.replace(".%f", "%.f"), time_unit="us", time_zone=zone, strict=False)
    except pl.exceptions.PolarsError as error:
        raise ConfigError(f"invalid time format {how!r}: {error}") from error
    if times.null_count() > texts.null_count():
        raise NotATimeError(f"not a time like {how}")
    return pa.chunked_array([times.to_arrow().cast(pa.timestamp("us"))])


def _cast(texts: pl.Series, kind: pa.DataType) -> pa.Array:
    try:
        return texts.to_arrow().cast(pa.string()).cast(kind)
    except pa.ArrowInvalid as error:
        raise NotATimeError(str(error)) from error


def is_time(text: str, how: str) -> bool:
    """Whether a string has a time format."""
    try:
        to_times(pa.chunked_array([pa.array([text], pa.string())]), how)
    except NotATimeError:
        return False
    return True


def described(how: str) -> str:
    """Describe a time format for messages."""
    if how in {_ISO, _FINE_ISO}:
        return "a time, such as 2026-01-31 12:00:00"
    unit = how.rsplit(" ", maxsplit=1)[-1]
    return f"a number of {unit} since 1970" if unit in TICKS else f"a time like {how}"
