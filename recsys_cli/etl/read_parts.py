"""Interactions read by the workers of a cluster: each part of the files becomes a scratch file, in the order of the files."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from recsys_cli.data.raw_files import RawFile
from recsys_cli.data.selection import nothing_new
from recsys_cli.errors import DataError, RecsysError
from recsys_cli.etl.engine import Executor
from recsys_cli.etl.filters import FilteredRows, Part, choose_rows, filters_of, missing_times, row_of, without_time
from recsys_cli.etl.reading.dialect import BadRow
from recsys_cli.etl.reading.parts import FilePart
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.etl.reading.text import OpenQuoteError
from recsys_cli.events import Emit, Progress, ignore
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.ops.program import Program
from recsys_cli.ops.scratch import Rows, read_file, typed

PART_CHUNKS = 2
"""Chunks of text per part."""


@dataclass(frozen=True)
class ScratchPart:
    """Rows of a part of the interactions in a scratch file.

    Attributes:
        first: Number of raw rows before the part; added to the ROW_NUMBER of its rows, or the number of its first row.
        last: Number of its last row in the part.
    """

    path: Path
    num_rows: int
    first: int
    last: int

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows, or some of their columns."""
        return read_file(self.path, columns)


@dataclass(frozen=True)
class PartRows:
    """Interactions in scratch files of parts."""

    names: pa.Schema
    parts: tuple[ScratchPart, ...]

    def schema(self) -> pa.Schema:
        """See `Rows.schema`."""
        return self.names

    def batches(self) -> Iterator[pa.Table]:
        """See `Rows.batches`."""
        return (part.read() for part in self.parts)


@dataclass(frozen=True)
class PartRead:
    """Result of a read of a part.

    Attributes:
        counts: Number of raw rows, and of rows after each op.
        last: Number of the last row in the part; -1 without rows.
        missing: Number of rows without a time.
        first_missing: Number of the first of these in the part.
        error: The error of the read, raised once all earlier parts are read.
    """

    path: Path
    counts: tuple[int, ...] = ()
    last: int = -1
    bad: tuple[BadRow, ...] = ()
    missing: int = 0
    first_missing: int = 0
    error: RecsysError | None = None


@dataclass(frozen=True)
class ReadPart:
    """The read of a part, with its row-wise ops: a task of an executor.

    Attributes:
        program: The plan with the ops; None to leave them for later.
        time: The column of times, if it exists before the split.
    """

    reader: Reader
    program: Program | None
    kind: Part
    folder: Path
    memory: int
    labels: Collection[str]
    time: str | None

    def __call__(self, part: FilePart) -> PartRead:
        """Write the rows of a part to a scratch file; a repeated read writes another file."""
        path = self.folder / f"{uuid.uuid4().hex}.arrow"
        if isinstance(part.file, Path) and not part.file.is_file():  # the process with the plan has seen it
            error = f"the worker on {socket.gethostname()} has no file {part.file}"
            return PartRead(
                path, error=DataError(error, hint="put the dataset where every worker has it, at the same path")
            )
        try:
            return self._read(self.reader.of(part), path)
        except RecsysError as error:
            path.unlink(missing_ok=True)
            return PartRead(path, error=error)

    def _read(self, reader: Reader, path: Path) -> PartRead:
        rows = FilteredRows(reader)
        if self.program is not None:
            scratch = path.with_suffix("")
            rows = choose_rows(
                self.program, reader, scratch, ignore, part=self.kind, memory=self.memory, labels=self.labels
            )
        schema, done, last, missing, first_missing = rows.schema(), 0, -1, 0, 0
        with pa.ipc.new_file(str(path), schema) as file:
            for batch in rows.batches():
                numbers = np.arange(done, done + batch.num_rows)
                if ROW_NUMBER in batch.column_names:
                    numbers = batch.column(ROW_NUMBER).to_numpy()
                mask = None if self.time is None else without_time(batch.column(self.time))
                if mask is not None and mask.any():
                    first_missing = first_missing if missing else int(numbers[mask][0])
                    missing += int(np.count_nonzero(mask))
                file.write_table(typed(batch, schema))
                done += batch.num_rows
                last = int(numbers[-1]) if batch.num_rows else last
        counts = (done,) if not rows.ops else tuple(counted.count for _, _, counted in rows.ops)
        return PartRead(path, counts, last, tuple(reader.rejected), missing, first_missing)


@dataclass
class PartReader:
    """Reads interactions on workers."""

    executor: Executor
    program: Program
    folder: Path
    memory: int
    labels: Collection[str]
    emit: Emit
    done: int = field(default=0, init=False)

    def read(self, reader: Reader, kind: Part, time: str | None) -> tuple[FilteredRows, Rows] | None:
        """Return the interactions after all filters, and their source; None where one process has to read them.

        Raises:
            DataError: The first error in the order of the files.
        """
        paths = _Paths.of(reader)
        anywhere = paths.absolute(reader)
        parts = anywhere.parts(int(PART_CHUNKS * reader.chunk_bytes))
        if parts is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        row_wise = all(op.row_wise for _, op in filters_of(self.program, kind))
        program = self.program if row_wise else None
        filters = self.folder / "filters"
        rows = FilteredRows(reader) if program is None else self._chosen(reader, filters, kind)
        timed = time if row_wise and time is not None and time in rows.schema().names else None
        task = ReadPart(anywhere, program, kind, self.folder, self.memory, self.labels, timed)
        source = self._source(reader, task, parts, rows, paths)
        if not row_wise:
            chosen = self._chosen(source, filters, kind)
            return chosen, chosen
        return rows, source

    def _chosen(self, rows: Rows, folder: Path, kind: Part) -> FilteredRows:
        return choose_rows(self.program, rows, folder, self.emit, part=kind, memory=self.memory, labels=self.labels)

    def _source(
        self, reader: Reader, task: ReadPart, parts: list[FilePart], rows: FilteredRows, paths: _Paths
    ) -> PartRows:
        """Read all parts, and set the counts of the rows."""
        read: list[ScratchPart] = []
        totals = [0] * max(1, len(rows.ops))
        missing = first_missing = 0
        for result in self._in_order(task, parts):
            if result.error is not None:
                raise paths.in_error(result.error)
            if result.missing:
                first_missing = first_missing if missing else totals[0] + result.first_missing
                missing += result.missing
            if result.counts[-1]:
                read.append(ScratchPart(result.path, result.counts[-1], totals[0], result.last))
            totals = [total + count for total, count in zip(totals, result.counts, strict=True)]
            reader.rejected += [replace(row, file=paths.given(row.file)) for row in result.bad]
            self.done += result.counts[-1]
            self.emit(Progress("read interactions", self.done, None))
        self.emit(Progress("read interactions", self.done, self.done))
        if missing:
            raise missing_times(str(task.time), missing, totals[-1], row_of(first_missing, reader))
        if reader.table.since and not totals[0]:
            raise nothing_new(reader.table.name, reader.table.since)
        for (_, _, counted), total in zip(rows.ops, totals, strict=False):
            counted.count = total
        return PartRows(rows.schema(), tuple(read))

    def _in_order(self, task: ReadPart, parts: list[FilePart]) -> Iterator[PartRead]:
        """Yield the results; a part that ends within quotes is read again with the next one."""
        results = zip(parts, self.executor.map(task, parts), strict=True)
        for part, result in results:
            whole, known = part, result
            while isinstance(known.error, OpenQuoteError):
                after, dropped = next(results)
                dropped.path.unlink(missing_ok=True)
                whole = whole.joined(after)
                (known,) = self.executor.map(task, [whole])
            yield known


@dataclass(frozen=True)
class _Paths:
    """The paths of a table: absolute for workers in other folders, and as given for messages.

    Attributes:
        base: The prefix of relative paths; empty without any.
    """

    base: str

    @classmethod
    def of(cls, reader: Reader) -> _Paths:
        """Return the paths of a reader's table."""
        is_relative = any(isinstance(file, Path) and not file.is_absolute() for file in reader.table.files)
        return cls(f"{Path.cwd()}/" if is_relative else "")

    def absolute(self, reader: Reader) -> Reader:
        """Return the reader of the absolute paths."""
        if not self.base:
            return reader
        files = tuple(file.absolute() if isinstance(file, Path) else file for file in reader.table.files)
        return replace(reader, table=replace(reader.table, files=files), rejected=[])

    def given(self, file: RawFile) -> RawFile:
        """Return a path as given."""
        return Path(str(file).removeprefix(self.base)) if isinstance(file, Path) else file

    def in_error(self, error: RecsysError) -> RecsysError:
        """Return an error with the paths as given."""
        return type(error)(error.message.replace(self.base, "") if self.base else error.message, hint=error.hint)
