"""Finding the rows of a text that cannot be read, and saying where and why; only used where the fast reader stumbled.

Arrow decides what a row, a field and a value are here, too: so a row does not depend on what stands near it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.data.remote import RawFile
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.etl.reading.dialect import plain_separator, read_text
from recsys_cli.etl.reading.row_ends import count_lines, rows_of
from recsys_cli.etl.reading.times import described, to_times

NO_UTF_8 = "UTF-8 text"
"""What the last words of a reason are where bytes are no letters."""

_LONGEST_SHOWN = 200


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


def sift(
    text: bytes | bytearray, table: RawTable, *, types: Mapping[str, pa.DataType], first_line: int, file: RawFile
) -> tuple[pa.Table, list[BadRow]]:
    """Separate the rows of a text that can be read from those that cannot.

    Args:
        text: Some lines of the file, without its header, in UTF-8 and with a separator of one character.
        table: The dialect; its columns are known.
        types: The fields that are needed, with their types; nothing is asked of others.
        first_line: Number in the file of the first of them.
        file: Named in the bad rows.

    Returns:
        The good rows with the wanted columns as they stand in the file (lists still as text), and the bad rows.
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
    lines, counted, before = first_line, 0, []
    for row in sorted(reasons):
        lines += count_lines(text[counted : starts[row]])
        counted = int(starts[row])
        before.append(lines)
    bad = [
        BadRow(file, line, *reasons[row], shown(text[starts[row] : stops[row]], table))
        for row, line in zip(sorted(reasons), before, strict=True)
    ]
    return good, bad


def whole_rows(text: bytes | bytearray, table: RawTable) -> bytes:
    """Return those rows of a plain text that have as many fields as the table has columns."""
    starts, stops, fields = rows_of(text, replace(table, separator=plain_separator(table), encoding="utf-8"))
    right = fields == len(table.columns)
    return b"\n".join(bytes(text[a:b]) for a, b in zip(starts[right], stops[right], strict=True))


def _values(
    text: bytes | bytearray, table: RawTable, types: Mapping[str, pa.DataType], rows: Sequence[slice]
) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """Return the rows whose wanted fields have values, and why others have none, by number of the row."""
    if not rows:
        return pa.schema(list(types.items())).empty_table(), {}
    whole = b"\n".join(bytes(text[row]) for row in rows)
    raw = read_text(whole, table, dict.fromkeys(types, pa.binary()), in_one=True)
    wrong: dict[int, tuple[str, str]] = {}
    read = {}
    by_name = {column.name: column for column in table.columns}
    for name, kind in types.items():
        column, found = by_name[name], raw.column(name).combine_chunks()
        read[name], failed = _converted(found, column, kind, table)
        for row in np.flatnonzero(failed).tolist():
            wrong.setdefault(row, (name, _reason(found[row].as_py(), column, kind)))
    keep = np.ones(raw.num_rows, dtype=bool)
    keep[list(wrong)] = False
    return pa.table(read).filter(pa.array(keep)), wrong


def _converted(
    raw: pa.Array, column: RawColumn, kind: pa.DataType, table: RawTable
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return the values of a column's fields, null where there is none, and where that is wrong."""
    fields = raw.dictionary_encode()
    known = fields.dictionary
    values, failed = _bisected(known, column.name, kind, table)
    taken = values.take(fields.indices)
    bad = np.append(failed, False)[fields.indices.fill_null(len(known)).to_numpy()]
    if not column.nullable:
        bad |= taken.is_null().to_numpy(zero_copy_only=False)
    return taken, bad


def _bisected(
    fields: pa.Array, name: str, kind: pa.DataType, table: RawTable
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Convert fields, halving them where some cannot be, until those stand alone."""
    try:
        return _cast(fields, name, kind, table), np.zeros(len(fields), dtype=bool)
    except pa.ArrowInvalid:
        if len(fields) == 1:
            return pa.nulls(1, kind), np.ones(1, dtype=bool)
    half = len(fields) // 2
    parts = [_bisected(part, name, kind, table) for part in (fields[:half], fields[half:])]
    return pa.concat_arrays([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _cast(fields: pa.Array, name: str, kind: pa.DataType, table: RawTable) -> pa.Array:
    """Convert fields by the CSV reader itself: each quoted, so that an empty text stays one."""
    if pa.types.is_string(kind):
        texts = fields.cast(kind)
        how = next(column.time for column in table.columns if column.name == name)
        if how is not None:
            to_times(pa.chunked_array([texts]), how)  # raises where one is none; times are made of what is left
        return texts
    if len(fields) == 0:
        return pa.array([], kind)
    alone = replace(table, columns=tuple(c for c in table.columns if c.name == name), quote='"', flags={})
    quoted = b"\n".join(b'"' + field.replace(b'"', b'""') + b'"' for field in fields.to_pylist())
    return read_text(quoted, alone, {name: kind}, in_one=True).column(name).combine_chunks()


def _reason(field: bytes | None, column: RawColumn, kind: pa.DataType) -> str:
    if not field:
        return "is empty"
    letters = shown(field)
    cut = letters if len(letters) <= _LONGEST_SHOWN else letters[:_LONGEST_SHOWN] + "…"
    return f"{cut!r} is not {_article(column, kind)}"


def _article(column: RawColumn, kind: pa.DataType) -> str:
    if kind == pa.string():
        return NO_UTF_8 if column.time is None else described(column.time)
    if pa.types.is_floating(kind):
        return "a number"
    if pa.types.is_boolean(kind):
        return "true or false"
    return (
        f"a whole number that fits {kind}"
        if pa.types.is_integer(kind)
        else f"a {column.dtype}, such as 2026-01-31 12:00:00"
    )


def shown(text: bytes | bytearray, table: RawTable | None = None) -> str:
    """Write text for people: bytes that are no letters in hexadecimal, and the table's own separators."""
    if table is not None and plain_separator(table) != table.separator:
        text = text.replace(plain_separator(table).encode(), table.separator.encode())
    return text.decode(errors="backslashreplace")
