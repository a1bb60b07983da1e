"""Location of bad rows in a text, with reasons, after a failure of the fast reader.

Arrow's rules for rows, fields and values apply, so a row is valid or bad independently of its neighbors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.data.remote import RawFile
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.etl.reading.dialect import count_lines, plain_separator, read_text, rows_of, shown_separator
from recsys_cli.etl.reading.times import described, to_times

NO_UTF_8 = "UTF-8 text"
"""End of the reason for invalid UTF-8."""

_MAX_SHOWN = 200


@dataclass(frozen=True)
class BadRow:
    """An unreadable row, skipped or raised as an error.

    Attributes:
        line: First line of the row, from 1.
        column: First bad column; None for a wrong number of fields.
    """

    file: RawFile
    line: int
    column: str | None
    reason: str
    text: str

    def __str__(self) -> str:
        column = f" column {self.column}:" if self.column else ""
        return f"{self.file}:{self.line}:{column} {self.reason}"


def sift(
    text: bytes | bytearray, table: RawTable, *, types: Mapping[str, pa.DataType], first_line: int, file: RawFile
) -> tuple[pa.Table, list[BadRow]]:
    """Separate the good and the bad rows of a text.

    The text has whole lines from `first_line` on, in UTF-8, with a separator of one character. `types` are those of the
    required fields; others are not checked.

    Returns:
        The good rows with the required columns in raw form (lists as strings), and the bad rows.
    """
    plain = replace(table, separator=plain_separator(table), encoding="utf-8")
    starts, stops, fields = rows_of(text, plain)
    reasons: dict[int, tuple[str | None, str]] = {
        int(row): (None, f"{fields[row]} fields instead of {len(table.columns)}")
        for row in np.flatnonzero(fields != len(table.columns))
    }
    whole = np.flatnonzero(fields == len(table.columns))
    good, wrong = _values(text, plain, types, [slice(starts[row], stops[row]) for row in whole])
    reasons |= {int(whole[row]): reason for row, reason in wrong.items()}
    line, offset, lines = first_line, 0, []
    for row in sorted(reasons):
        line += count_lines(text[offset : starts[row]])
        offset = int(starts[row])
        lines.append(line)
    bad = [
        BadRow(file, line, *reasons[row], printable(text[starts[row] : stops[row]], table))
        for row, line in zip(sorted(reasons), lines, strict=True)
    ]
    return good, bad


def whole_rows(text: bytes | bytearray, table: RawTable) -> bytes:
    """Return the rows of a plain text with one field per column."""
    starts, stops, fields = rows_of(text, replace(table, separator=plain_separator(table), encoding="utf-8"))
    whole = fields == len(table.columns)
    return b"\n".join(bytes(text[a:b]) for a, b in zip(starts[whole], stops[whole], strict=True))


def _values(
    text: bytes | bytearray, table: RawTable, types: Mapping[str, pa.DataType], rows: Sequence[slice]
) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """Return the rows with valid required fields; column and reason of each bad row by number."""
    if not rows:
        return pa.schema(list(types.items())).empty_table(), {}
    whole = b"\n".join(bytes(text[row]) for row in rows)
    raw = read_text(whole, table, dict.fromkeys(types, pa.binary()), in_one=True)
    wrong: dict[int, tuple[str, str]] = {}
    read = {}
    by_name = {column.name: column for column in table.columns}
    for name, kind in types.items():
        column, fields = by_name[name], raw.column(name).combine_chunks()
        read[name], failed = _converted(fields, column, kind, table)
        for row in np.flatnonzero(failed).tolist():
            wrong.setdefault(row, (name, _reason(fields[row].as_py(), column, kind)))
    keep = np.ones(raw.num_rows, dtype=bool)
    keep[list(wrong)] = False
    return pa.table(read).filter(pa.array(keep)), wrong


def _converted(
    raw: pa.Array, column: RawColumn, kind: pa.DataType, table: RawTable
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return the values, null for bad fields, and a mask of the bad ones."""
    fields = raw.dictionary_encode()
    distinct = fields.dictionary
    values, failed = _bisected(distinct, column.name, kind, table)
    taken = values.take(fields.indices)
    bad = np.append(failed, False)[fields.indices.fill_null(len(distinct)).to_numpy()]
    if not column.nullable:
        bad |= taken.is_null().to_numpy(zero_copy_only=False)
    return taken, bad


def _bisected(
    fields: pa.Array, name: str, kind: pa.DataType, table: RawTable
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Convert fields; on failure, bisect down to the single bad ones."""
    try:
        return _cast(fields, name, kind, table), np.zeros(len(fields), dtype=bool)
    except pa.ArrowInvalid:
        if len(fields) == 1:
            return pa.nulls(1, kind), np.ones(1, dtype=bool)
    half = len(fields) // 2
    parts = [_bisected(part, name, kind, table) for part in (fields[:half], fields[half:])]
    return pa.concat_arrays([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _cast(fields: pa.Array, name: str, kind: pa.DataType, table: RawTable) -> pa.Array:
    """Convert fields by the CSV reader, all quoted so that empty strings stay."""
    if pa.types.is_string(kind):
        texts = fields.cast(kind)
        how = next(column.time for column in table.columns if column.name == name)
        if how is not None:
            to_times(pa.chunked_array([texts]), how)  # only a check: raises for invalid times
        return texts
    if len(fields) == 0:
        return pa.array([], kind)
    single = replace(table, columns=tuple(c for c in table.columns if c.name == name), quote='"', flags={})
    quoted = b"\n".join(b'"' + field.replace(b'"', b'""') + b'"' for field in fields.to_pylist())
    return read_text(quoted, single, {name: kind}, in_one=True).column(name).combine_chunks()


def _reason(field: bytes | None, column: RawColumn, kind: pa.DataType) -> str:
    if not field:
        return "is empty"
    text = printable(field)
    cut = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    return f"{cut!r} is not {_expected(column, kind)}"


def _expected(column: RawColumn, kind: pa.DataType) -> str:
    if kind == pa.string():
        return NO_UTF_8 if column.time is None else described(column.time)
    if pa.types.is_floating(kind):
        return "a number"
    if pa.types.is_boolean(kind):
        return "true or false"
    return (
        f"an integer that fits {kind}"
        if pa.types.is_integer(kind)
        else f"a {column.dtype}, such as 2026-01-31 12:00:00"
    )


def printable(text: bytes | bytearray, table: RawTable | None = None) -> str:
    """Decode text for messages, with the table's separators and invalid bytes in hexadecimal."""
    if table is not None and plain_separator(table) != table.separator:
        text = text.replace(plain_separator(table).encode(), shown_separator(table).encode())
    return text.decode(errors="backslashreplace")
