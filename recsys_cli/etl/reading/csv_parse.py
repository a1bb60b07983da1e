"""Parser of a text chunk: all rows at once, or row by row after a failure, to locate bad rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.bad_rows import NO_UTF_8, BadRow, sift
from recsys_cli.etl.reading.csv_chunks import Chunk
from recsys_cli.etl.reading.dialect import ARROW_TYPES, field_types, read_text, to_plain, with_separators
from recsys_cli.etl.reading.plain_types import plain_type
from recsys_cli.etl.reading.times import to_times

_SHOWN = 10


@dataclass(frozen=True)
class Parsed:
    """The good and bad rows of a chunk."""

    rows: pa.Table
    bad: Sequence[BadRow] = ()


def parse(
    chunk: Chunk,
    columns: Sequence[str] | None,
    *,
    skip_bad: bool = False,
    every_row: bool = False,
    times: Collection[str] = (),
) -> Parsed:
    """Parse some columns of a chunk, in order, or all.

    `every_row` (no row may be skipped, types are fixed) and `times` (the time columns) only change the hint of the
    error.

    Raises:
        DataError: A row is bad and `skip_bad` is false.
    """
    table = chunk.table
    names = [column.name for column in table.columns]
    fields = names if columns is None else _fields(columns, table)
    kinds = field_types(table)
    types = {name: kinds[name] for name in fields}
    if not chunk.text:
        return Parsed(_finished(_with_times(pa.schema(list(types.items())).empty_table(), table), table, columns))
    text = to_plain(chunk.text, table)
    rows = _fast(text, table, types)
    bad: list[BadRow] = []
    if rows is None:
        line = chunk.lines.at(chunk.offset)
        rows, bad = sift(text, table, types=types, first_line=line, file=chunk.file)
        if bad and not skip_bad:
            raise _error(bad, table, times, every_row=every_row)
        rows = _with_times(rows, table)
    return Parsed(_finished(rows, table, columns), bad)


def _fast(text: bytes | bytearray, table: RawTable, types: Mapping[str, pa.DataType]) -> pa.Table | None:
    try:
        rows = _with_times(read_text(text, table, types), table)
    except pa.ArrowInvalid:
        return None
    required = [column.name for column in table.columns if not column.nullable and column.name in types]
    return None if any(rows.column(name).null_count for name in required) else rows


def _with_times(rows: pa.Table, table: RawTable) -> pa.Table:
    for column in table.columns:
        if column.time is not None and column.name in rows.column_names:
            index = rows.column_names.index(column.name)
            rows = rows.set_column(index, column.name, to_times(rows.column(index), column.time))
    return rows


def _fields(columns: Sequence[str], table: RawTable) -> list[str]:
    names = {column.name for column in table.columns}
    flags = [flag for name in columns for flag in table.flags.get(name, ())]
    return [name for name in columns if name in names] + flags


def _error(bad: Sequence[BadRow], table: RawTable, times: Collection[str], *, every_row: bool) -> DataError:
    shown = "\n".join(f"  {row}" for row in bad[:_SHOWN])
    more = f"\n  and {len(bad) - _SHOWN} more nearby" if len(bad) > _SHOWN else ""
    hint = "fix the file, or skip bad rows with etl.on_bad_rows=skip"
    if every_row:
        hint = "fix the file: every row is prepared, in file order and with the types of the prepared data"
    elif mistyped := [column for column in table.columns if column.nullable and column.name in {r.column for r in bad}]:
        inferred = ", ".join(f"{column.name} {column.time or column.dtype}" for column in mistyped)
        first = mistyped[0]
        option = f"times: {{{first.name}: FORMAT}}" if first.name in times else f"types: {{{first.name}: string}}"
        hint += (
            f"; types come from the first rows ({inferred}), unless the dataset sets them "
            f"({option} next to the table's files)"
        )
    if any(row.reason.endswith(NO_UTF_8) for row in bad):
        hint += "; for Latin-1 text, set encoding: latin-1 next to the table's files"
    return DataError(f"rows that cannot be read:\n{shown}{more}", hint=hint)


def _finished(rows: pa.Table, table: RawTable, columns: Sequence[str] | None) -> pa.Table:
    declared = {column.name: column for column in table.columns}
    finished = []
    for name, stored in zip(rows.column_names, rows.columns, strict=True):
        values = with_separators(stored, table)
        values = values if declared[name].separator is None else split(values, declared[name])
        finished.append(values.cast(plain_type(values.type)))
    rows = pa.table(finished, rows.column_names)
    for name, flags in table.flags.items():
        if set(flags) <= set(rows.column_names):
            lists = _from_flags(rows.select(list(flags)))
            rows = rows.drop_columns(list(flags)).append_column(name, lists)
    return rows.select(list(columns)) if columns is not None else rows


def split(texts: pa.ChunkedArray, column: RawColumn) -> pa.ChunkedArray:
    """Split strings into lists."""
    lists = pc.split_pattern(texts.cast(pa.string()), str(column.separator))
    empty = pc.fill_null(pc.equal(texts, column.empty or ""), False)
    lists = pc.if_else(empty, pa.scalar([], type=lists.type), lists)
    try:
        return lists.cast(pa.list_(ARROW_TYPES[column.dtype or "string"]))
    except pa.ArrowInvalid as error:
        raise DataError(f"column {column.name}: an element of a list is not {column.dtype}: {error}") from error


def _from_flags(flags: pa.Table) -> pa.Array:
    rows = zip(*(flags.column(name).to_pylist() for name in flags.column_names), strict=True)
    lists = [[name for name, flag in zip(flags.column_names, row, strict=True) if flag] for row in rows]
    return pa.array(lists, pa.list_(pa.string()))
