"""Files with types of their own: Parquet, JSON lines, and NumPy arrays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import json

from recsys_cli.data import raw_files
from recsys_cli.data.raw_files import RawFile, RemoteFile, compression, file_errors, fill, head, opened, size_of
from recsys_cli.data.source import Format, RawColumn, RawTable
from recsys_cli.errors import DataError, listed
from recsys_cli.etl.reading.dialect import ARROW_TYPES
from recsys_cli.etl.reading.rows import plain_type, refuse_mixed_times, to_plain_type
from recsys_cli.etl.reading.text import split
from recsys_cli.etl.reading.times import read_times, stored_type
from recsys_cli.features.columns import STORED_AS
from recsys_cli.features.spec import is_list

_SAMPLE, _BLOCK = 4 << 20, 4 << 20
_LONGEST = 256 << 20
_LEVELS = 100
_LINES = 50_000
"""Lines parsed at once; Arrow refuses more than 100,000 objects in a block."""


@dataclass(frozen=True)
class Size:
    """Estimated size, in the form of Parquet's metadata."""

    num_rows: int
    num_row_groups: int = 0


class JsonLines:
    """A file of JSON lines.

    Attributes:
        schema_arrow: Names and types by the first 50,000 lines or 4 MiB, and at least one line.
        metadata: The number of rows, estimated from these.
    """

    def __init__(self, file: RawFile) -> None:
        self._file = file
        text, is_whole = _start(file)
        end = len(text) if is_whole else text.rfind(b"\n") + 1
        lines = text.count(b"\n", 0, end) + (not text.endswith(b"\n") and is_whole and bool(text))
        first = next(_pieces(text[:end] or text), b"")
        self.schema_arrow = _schema(first, file) if first else pa.schema([])
        share = 1.0 if is_whole else (size_of(file) or end) / max(1, end)
        self.metadata = Size(round(lines * share * (5 if compression(file.name) and share != 1.0 else 1)))

    def iter_batches(self, rows: int, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, in some columns and the types of the first rows."""
        schema = pa.schema([self.schema_arrow.field(name) for name in columns])
        rest = b""
        with opened(self._file) as (stream, _):
            buffer = bytearray(_BLOCK)
            count = _BLOCK
            while count == _BLOCK:
                count = fill(stream, memoryview(buffer))
                text = rest + bytes(buffer[:count])
                end = len(text) if count < _BLOCK else text.rfind(b"\n") + 1
                text, rest = text[:end], text[end:]
                for piece in _pieces(text):
                    yield from _parsed(piece, schema, self._file).select(list(columns)).to_batches(rows)


@lru_cache(maxsize=2)
def _schema(text: bytes, file: RawFile) -> pa.Schema:
    """Return the names and types of the first lines; a table is opened several times."""
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.count(b"[") + line.count(b"{") > _LEVELS and _levels(line) > _LEVELS:  # Arrow takes minutes, or crashes
            raise DataError(
                f"{file}:{number}: lists or objects of more than {_LEVELS} levels",
                hint="leave out the nested column, or write its values as columns of their own",
            )
    return _parsed(text, None, file).schema


def _levels(line: bytes) -> int:
    """Return the depth of nested lists and objects."""
    marks = re.findall(rb"[\[\]{}]", re.sub(rb'"(?:[^"\\]|\\.)*"', b"", line))
    return max(accumulate(1 if mark in b"[{" else -1 for mark in marks), default=0)


def _start(file: RawFile) -> tuple[bytes, bool]:
    """Return the first bytes of a file, with a whole line except of a JSON array, and whether these are all."""
    size = _SAMPLE
    while len(text := head(file, size)) == size < _LONGEST and not text[: text.rfind(b"\n") + 1].strip():
        if text.lstrip().startswith(b"["):
            break
        size *= 4
    return text, len(text) < size


def _pieces(text: bytes) -> Iterator[bytes]:
    lines = [line for line in text.split(b"\n") if line.strip()]
    for first in range(0, len(lines), _LINES):
        yield b"\n".join(lines[first : first + _LINES])


def _parsed(text: bytes, schema: pa.Schema | None, file: RawFile) -> pa.Table:
    if not text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):  # pyarrow crashes at null
        start = text.lstrip().split(b"\n")[0][:20].decode(errors="replace")
        raise DataError(f"{file}: not JSON lines: a line begins with {start!r}", hint="write one object per line")
    try:
        rows = json.read_json(
            pa.BufferReader(text),
            read_options=json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1 << 16)),
            parse_options=json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{file}: not JSON lines, an object per line with the types of the first: {error}",
            hint="write one object per line; a JSON array, or a value of another type, cannot be read",
        ) from error
    return rows


_HINT = "write an array of numbers, texts or times, or a matrix of numbers, with numpy.save(path, array)"


class NpyTable:
    """A table of NumPy files, one per column.

    Args:
        table: Each file becomes the column of that place in `columns`, or of the file's own name.
    """

    def __init__(self, table: RawTable) -> None:
        self._files = dict(zip([column.name for column in table.columns], table.files, strict=True))

    @cached_property
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = {name: _mapped(file) for name, file in self._files.items()}
        rows = {len(array) for array in arrays.values()}
        if len(rows) > 1:
            held = ", ".join(f"{file} has {len(arrays[name]):,}" for name, file in self._files.items())
            raise DataError(f"NumPy files of one table differ in their rows: {held}", hint="write one row per key")
        return arrays

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self._arrays.values())))

    def schema(self) -> pa.Schema:
        """Return the names and plain types of the columns."""
        return pa.schema([(name, self._column(name, 0, 0).type) for name in self._arrays])

    def batches(self, columns: Sequence[str], *, chunk_bytes: int) -> Iterator[pa.Table]:
        """Yield the rows in order, in some of the columns."""
        arrays = [self._arrays[name] for name in columns]
        width = sum(array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64)) for array in arrays)
        step = max(1, chunk_bytes // max(1, width))
        for first in range(0, self.num_rows, step):
            yield pa.table({name: self._column(name, first, first + step) for name in columns})

    def _column(self, name: str, first: int, stop: int) -> pa.Array:
        array = self._arrays[name]
        is_half = array.dtype.kind == "f" and array.dtype.itemsize == 2  # unsupported by Arrow before release 16
        kind = np.dtype(np.float32) if is_half else array.dtype.newbyteorder("=")
        values = pa.array(np.ascontiguousarray(array[first:stop]).astype(kind, copy=False).ravel())
        if pa.types.is_binary(values.type):
            values = values.cast(pa.string())
        if array.ndim == 2:
            values = pa.FixedSizeListArray.from_arrays(values, array.shape[1])
        plain = plain_type(values.type)
        return values if values.type == plain else values.cast(plain)


def _mapped(file: Any) -> npt.NDArray[Any]:
    """Open an array without reading it.

    Raises:
        DataError: The file is remote, damaged, no array, or holds Python objects or no rows of values.
    """
    if not isinstance(file, Path):
        raise DataError(
            f"{file}: NumPy files are read from this machine only", hint="download it, and name the local file"
        )
    size_of(file)
    with file_errors(file):
        try:
            array = np.load(file, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise DataError(f"{file}: not an array in NumPy's format: {error}", hint=_HINT) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(f"{file}: an archive of several arrays", hint=_HINT)
    is_wide = array.dtype.kind == "f" and array.dtype.itemsize > 8
    kinds = "iufb" if array.ndim == 2 else "iufbUSM"
    if array.ndim not in {1, 2} or 0 in array.shape or array.dtype.kind not in kinds or is_wide:
        shape = " x ".join(map(str, array.shape)) or "no dimension"
        raise DataError(f"{file}: an array of {shape} with type {array.dtype} is no column", hint=_HINT)
    return array


_PROBED = 1_000
_SAMPLE_ROWS = 100_000
"""Sample size for the detection of time formats."""
_MAX_ROWS = 2_000_000
_MIN_BUFFER, _MAX_BUFFER = 64 << 10, 8 << 20
_COUNTED_FILES = 256


@contextmanager
def open_parquet(
    file: RawFile, kind: Format = "parquet", *, buffer_bytes: int = _MIN_BUFFER
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, or JSON lines in its interface.

    `buffer_bytes` is the read buffer per column; Arrow's default is a whole column chunk.

    Raises:
        DataError: The file is missing or not Parquet, or its server does not support range requests.
    """
    size_of(file)
    if kind == "jsonl":
        yield cast("pq.ParquetFile", JsonLines(file))
        return
    with ExitStack() as stack, file_errors(file):
        source: str | BinaryIO = str(file)
        if isinstance(file, RemoteFile):
            source = stack.enter_context(file.open(in_order=False))
        try:
            opened = stack.enter_context(raw_files.open_parquet(source, buffer_size=buffer_bytes))
        except pa.ArrowInvalid as error:
            raise DataError(f"{file}: not a Parquet file: {error}") from error
        except (pa.ArrowNotImplementedError, OSError) as error:
            if isinstance(error, OSError) and "LogicalType" not in str(error):
                raise
            raise DataError(
                f"{file}: pyarrow {pa.__version__} cannot read the type of a column: {error}",
                hint="write float16 as float32, 128-bit integers as text, and other types as numbers, text or times",
            ) from error
        yield opened


def table_schema(table: RawTable) -> pa.Schema:
    """Return names and plain types of a table's columns, by its first file and the dataset."""
    first, *others = table.files
    stored = stored_schema(first, table.format)
    declared = {column.name: column for column in table.columns}
    if unknown := [name for name in declared if name not in stored.names]:
        raise DataError(
            f"{first}: no column {listed(unknown)}, named in the dataset's types or lists; "
            f"the file has {listed(stored.names)}",
            hint="fix types and lists of the dataset",
        )
    kinds = {field.name: _declared_type(declared.get(field.name), plain_type(field.type)) for field in stored}
    for column in table.columns:
        if column.time is not None and column.separator is None:
            kinds[column.name] = stored_type(_sample(table, column.name), column.time, str(first), column.name)[1]
    for file in others:  # the type of an all-null column comes from another file
        if not any(pa.types.is_null(kind) for kind in kinds.values()):
            break
        also = {field.name: plain_type(field.type) for field in stored_schema(file, table.format)}
        kinds |= {name: also.get(name, kind) for name, kind in kinds.items() if pa.types.is_null(kind)}
    return pa.schema(
        [pa.field(name, kind, metadata=_stored_as(stored.field(name).type)) for name, kind in kinds.items()]
    )


def _stored_as(kind: pa.DataType) -> dict[bytes, bytes] | None:
    """Return the metadata of a column of dates, read as timestamps."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return {STORED_AS: str(inner).encode()} if pa.types.is_date(inner) else None


def with_time_formats(table: RawTable, times: Mapping[str, str]) -> RawTable:
    """Return the table with the formats of its time columns, declared or detected in the first rows."""
    stored = stored_schema(table.files[0], table.format)
    columns = {column.name: column for column in table.columns}
    for name in dict.fromkeys((*(name for name, one in columns.items() if one.time is not None), *times)):
        column = columns.get(name, RawColumn(name, None, nullable=True))
        if name not in stored.names or column.separator is not None or is_list(stored.field(name).type):
            continue
        declared = column.time or times[name]
        detected = stored_type(_sample(table, name), declared, str(table.files[0]), name)[0]
        columns[name] = replace(column, time=detected)
    return replace(table, columns=tuple(columns.values()))


def _sample(table: RawTable, name: str) -> pa.ChunkedArray:
    values = None
    for file in table.files:
        with open_parquet(file, table.format) as opened:
            kind = plain_type(opened.schema_arrow.field(name).type)
            batch = next(opened.iter_batches(_SAMPLE_ROWS, columns=[name]), None)
        stored = pa.chunked_array([], kind) if batch is None else pa.chunked_array([batch.column(0)])
        values = to_plain_type(stored, kind, name=name, where=str(file))
        if len(values):
            break
    return values


def stored_schema(file: RawFile, kind: Format) -> pa.Schema:
    """Return the names and stored types of a file's columns.

    Raises:
        DataError: The file has a duplicate column.
    """
    with open_parquet(file, kind) as opened:
        schema = opened.schema_arrow
    if twice := sorted(name for name, count in Counter(schema.names).items() if count > 1):
        raise DataError(f"{file}: duplicate column {', '.join(twice)}")
    return schema


def _declared_type(column: RawColumn | None, kind: pa.DataType) -> pa.DataType:
    if column is None:
        return kind
    declared = kind if column.dtype is None else plain_type(ARROW_TYPES[column.dtype])
    is_list_column = column.separator is not None or (is_list(kind) and column.dtype is not None)
    return pa.list_(declared) if is_list_column else declared


def parquet_rows(
    table: RawTable,
    schema: pa.Schema,
    *,
    typed_by: RawFile,
    chunk_bytes: int,
    check: Callable[[RawFile, Sequence[str]], None],
    groups: Sequence[int] | None = None,
    first: int = 0,
) -> Iterator[pa.Table]:
    """Yield the rows of a table's files in order, or of some row groups of its file, in the columns and types of a schema.

    `typed_by` is the file of the schema, and `first` the number of the first row in its file, for errors; `check` gets each
    file and its column names, before its rows.
    """
    declared = {column.name for column in table.columns if column.dtype is not None}
    lists = {column.name: column for column in table.columns if column.separator is not None}
    times = {column.name: column.time for column in table.columns if column.time is not None}
    for file in table.files:
        batches = parquet_batches(
            file, schema.names, kind=table.format, chunk_bytes=chunk_bytes, check=check, groups=groups
        )
        for stored in batches:
            columns = {}
            for target in schema:
                values = stored.column(target.name)
                if target.name in lists and pa.types.is_string(plain_type(values.type)):
                    values = split(values, lists[target.name])
                elif target.name in times:
                    plain = to_plain_type(values, plain_type(values.type), name=target.name, where=str(file))
                    values = read_times(plain, times[target.name], file=str(file), name=target.name, first=first)
                if target.name not in declared:
                    refuse_mixed_times(values.type, target, where=str(file), typed_by=str(typed_by))
                columns[target.name] = to_plain_type(values, target.type, name=target.name, where=str(file))
            first += stored.num_rows
            yield pa.table(columns, schema=schema)
        first = 0


def parquet_batches(
    file: RawFile,
    columns: Sequence[str],
    *,
    kind: Format = "parquet",
    chunk_bytes: int,
    check: Callable[[RawFile, Sequence[str]], None] = lambda *_: None,
    groups: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """Yield a file's rows in order, in stored types.

    A batch has about a quarter of `chunk_bytes`, because row sizes vary, and spans row groups; memory holds one batch
    and one buffer per column.

    Raises:
        DataError: The file is unreadable, or the number of its rows differs from its metadata.
    """
    buffer = min(_MAX_BUFFER, max(_MIN_BUFFER, chunk_bytes // (4 * max(1, len(columns)))))
    with open_parquet(file, kind, buffer_bytes=buffer) as opened:
        check(file, opened.schema_arrow.names)
        rows = _rows_at_a_time(opened, columns, chunk_bytes // 4)
        found = 0
        some = {} if groups is None else {"row_groups": list(groups)}
        for batch in opened.iter_batches(rows, columns=list(columns), **some):
            found += batch.num_rows
            yield pa.Table.from_batches([batch]).select(list(columns))
        meta = opened.metadata
        stated = meta.num_rows if groups is None else sum(meta.row_group(group).num_rows for group in groups)
        if kind == "parquet" and found != stated:  # of JSON lines it is an estimate
            raise DataError(
                f"{file}: damaged: its metadata states {stated:,} rows, but it has {found:,}",
                hint="write it again, or fetch it again with recsys download --force",
            )


def _rows_at_a_time(file: pq.ParquetFile, columns: Sequence[str], num_bytes: int) -> int:
    """Return the rows per `num_bytes` in memory, by a probe: stored sizes are too small (dictionaries)."""
    rows = file.metadata.num_rows
    stored = sum(file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups))
    few = max(1, min(_PROBED, num_bytes * rows // max(1, stored)))
    if rows <= few:
        return few
    probe = next(file.iter_batches(few, columns=list(columns)), None)
    if probe is None:  # a damaged file, or JSON lines without objects
        return few
    return max(1, min(_MAX_ROWS, num_bytes * probe.num_rows // max(1, probe.nbytes)))


def estimated_parquet_rows(files: Sequence[RawFile], kind: Format = "parquet") -> int:
    """Return the number of rows: exact for the first 256 files, extrapolated by size for the rest."""
    counted, rest = files[:_COUNTED_FILES], files[_COUNTED_FILES:]
    rows = 0
    for file in counted:
        with open_parquet(file, kind) as opened:
            rows += opened.metadata.num_rows
    if not rest:
        return rows
    seen, unseen = (sum(size_of(file) or 0 for file in part) for part in (counted, rest))
    return rows + round(rows * unseen / max(1, seen))
