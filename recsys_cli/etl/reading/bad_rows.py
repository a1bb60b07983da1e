"""Finding the rows of a text that cannot be read, and saying where and why; only used where the fast reader stumbled."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recsys_cli.data.remote import RawFile
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.dialect import field_type, plain_separator


@dataclass(frozen=True)
class BadRow:
    """A row that was left out or stopped the work.

    Attributes:
        file: Where it is.
        line: Its first line in the file, from 1.
        column: The first column that is wrong; None where the number of fields is.
        reason: What is wrong with it.
        text: The row as it stands there.
    """

    file: RawFile
    line: int
    column: str | None
    reason: str
    text: str

    def __str__(self) -> str:
        """One line for a message."""
        column = f" column {self.column}:" if self.column else ""
        return f"{self.file}:{self.line}:{column} {self.reason}"


def sift(text: bytes | bytearray, table: RawTable, *, first_line: int, file: RawFile) -> tuple[pa.Table, list[BadRow]]:
    """Read text row by row and separate what can be read from what cannot.

    Args:
        text: Some lines of the file, without its header, in UTF-8 and with a separator of one character.
        table: The dialect; its columns are known.
        first_line: Number in the file of the first of them.
        file: Named in the bad rows.

    Returns:
        The good rows with all columns as they stand in the file (lists still as text), and the bad rows.
    """
    lines = io.StringIO(text.decode(errors="surrogateescape"), newline="")
    rows = csv.reader(lines, delimiter=plain_separator(table), **_quoting(table))
    names = [column.name for column in table.columns]
    good: list[list[object]] = []
    bad: list[BadRow] = []
    previous = 0
    for fields in _limited(rows, file, first_line):
        line, previous = previous + first_line, rows.line_num
        if not fields:
            continue
        values, column, reason = _convert(fields, table.columns)
        if reason is None:
            good.append(values)
        else:
            bad.append(BadRow(file, line, column, reason, _shown(table.separator.join(fields))))
    columns = list(zip(*good, strict=True)) or [()] * len(names)
    types = [field_type(column) for column in table.columns]
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names), bad


def _quoting(table: RawTable) -> dict[str, Any]:
    return {"quotechar": table.quote} if table.quote else {"quoting": csv.QUOTE_NONE}


def _convert(fields: list[str], columns: tuple[RawColumn, ...]) -> tuple[list[object], str | None, str | None]:
    if len(fields) != len(columns):
        return [], None, f"{len(fields)} fields instead of {len(columns)}"
    values: list[object] = []
    for field, column in zip(fields, columns, strict=True):
        kind = field_type(column)
        if field == "" and kind != pa.string() and not column.nullable:
            return [], column.name, "is empty"
        try:
            values.append(_value(field, kind))
        except (ValueError, OverflowError):
            return [], column.name, f"{_shown(field)!r} is not {_article(column)}"
    return values, None, None


def _value(field: str, kind: pa.DataType) -> object:
    """Return a field's value.

    Raises:
        ValueError: It has none of this type.
    """
    if kind == pa.string():
        field.encode()  # raises where bytes were no letters
        return field
    if field == "":
        return None
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return pa.array([field]).cast(kind)[0].as_py()
    number = float(field) if pa.types.is_floating(kind) else int(field)
    pa.scalar(number, kind)  # raises where the number does not fit the type
    return number


def _article(column: RawColumn) -> str:
    kind = field_type(column)
    if kind == pa.string():
        return "UTF-8 text"
    if pa.types.is_floating(kind):
        return "a number"
    if pa.types.is_boolean(kind):
        return "true or false"
    return (
        f"a whole number that fits {kind}"
        if pa.types.is_integer(kind)
        else f"a {column.dtype}, such as 2026-01-31 12:00:00"
    )


def _limited(rows: Iterator[list[str]], file: RawFile, first_line: int) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as error:
        line = first_line + getattr(rows, "line_num", 1) - 1
        raise DataError(
            f"{file}:{line}: {error}", hint="is a quote missing there? quote: null takes quotes as ordinary characters"
        ) from error


def _shown(text: str) -> str:
    """Write bytes that are no letters as what they are in hexadecimal."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
