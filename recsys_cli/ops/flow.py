"""Row flows between ops: lazy for row-wise ops, materialized in a spill file for ops over all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from recsys_cli.events import Emit, Progress
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.ops.scratch import Rows, SpillFile, typed
from recsys_cli.packages import np, npt, pa

Mask: TypeAlias = "npt.NDArray[np.bool_]"
Part = TypeVar("Part")


@runtime_checkable
class Flow(Protocol):
    """Rows in a fixed order, each with its ROW_NUMBER, that can be read repeatedly."""

    @property
    def materialized(self) -> bool:
        """Whether the rows are in scratch files, so that another pass parses nothing."""

    @property
    def most(self) -> int | None:
        """Upper bound of the number of rows; None before a count."""

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns, ROW_NUMBER included."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns, in contiguous, non-empty batches."""

    def discard(self) -> None:
        """Delete the scratch files of the rows, after the last pass."""


@dataclass(frozen=True)
class Numbered:
    """The raw rows with their numbers, in the types of the first file, with dictionaries decoded."""

    source: Rows
    materialized: bool = False
    most: int | None = None

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""
        fields = [pa.field(field.name, plain(field.type)) for field in self.source.schema()]
        return pa.schema([*fields, pa.field(ROW_NUMBER, pa.int64())])

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows.

        Raises:
            DataError: A value does not fit the type of its column in the first file.
        """
        schema = self.schema()
        raw = schema.remove(schema.get_field_index(ROW_NUMBER))
        first = 0
        for batch in self.source.batches():
            if not batch.num_rows:
                continue
            numbers = np.arange(first, first + batch.num_rows, dtype=np.int64)
            first += batch.num_rows
            rows = typed(batch, raw).combine_chunks().append_column(schema.field(ROW_NUMBER), pa.array(numbers))
            yield rows if columns is None else rows.select(list(columns))

    def discard(self) -> None:
        """Do nothing: the raw files stay."""


def plain(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries: a scratch file does not support a different dictionary per batch."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type):
        return pa.list_(kind.value_type.value_type)
    return kind


class Derived:
    """Rows computed from other rows: the columns, bounds and scratch files of those rows by default."""

    rows: Flow

    @property
    def materialized(self) -> bool:
        """Whether the rows are in scratch files."""
        return self.rows.materialized

    @property
    def most(self) -> int | None:
        """Upper bound of the number of rows."""
        return self.rows.most

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""
        return self.rows.schema()

    def discard(self) -> None:
        """Delete the scratch files of the rows."""
        self.rows.discard()


@dataclass(frozen=True)
class Computed(Derived):
    """Rows after a row-wise function of batches, lazily; the function may remove rows."""

    rows: Flow
    function: Callable[[pa.Table], pa.Table]

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""
        return self.function(self.rows.schema().empty_table()).schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows."""
        for batch in self.rows.batches():
            rows = self.function(batch)
            if rows.num_rows:
                yield (rows if columns is None else rows.select(list(columns))).combine_chunks()


def filter_rows(rows: Flow, keep: Callable[[pa.Table], Mask], columns: Sequence[str]) -> Computed:
    """Filter rows by a mask per batch, and keep only some columns."""
    return Computed(rows, partial(_filter_batch, keep, list(columns)))


def _filter_batch(keep: Callable[[pa.Table], Mask], columns: list[str], batch: pa.Table) -> pa.Table:
    mask = keep(batch)
    rows = batch.select(columns)
    return rows if mask.all() else rows.filter(pa.array(mask))


@dataclass(frozen=True)
class Materialized:
    """Rows in a spill file."""

    spill: SpillFile
    most: int
    materialized: bool = True

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""
        return self.spill.schema()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns."""
        return self.spill.batches(columns)

    def discard(self) -> None:
        """Delete the file."""
        self.spill.delete()


@dataclass(frozen=True)
class Masked(Derived):
    """Materialized rows after a filter.

    Attributes:
        rows: The rows.
        keep: Mask of the kept rows; shape (N,).
    """

    rows: Flow
    keep: Mask

    @property
    def most(self) -> int:
        """Number of kept rows."""
        return int(np.count_nonzero(self.keep))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the kept rows, or some of their columns."""
        first = 0
        for batch in self.rows.batches(columns):
            keep = self.keep[first : first + batch.num_rows]
            first += batch.num_rows
            if keep.all():
                yield batch
            elif keep.any():
                yield batch.filter(pa.array(keep)).combine_chunks()


@dataclass
class Counted(Derived):
    """Rows with a count, set by a complete pass."""

    rows: Flow
    count: int = field(default=0, init=False)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows."""
        count = 0
        for batch in self.rows.batches(columns):
            count += batch.num_rows
            yield batch
        self.count = count


@dataclass(frozen=True)
class OpContext:
    """The execution context of an op.

    Attributes:
        name: Name of the op.
        folder: The scratch folder of the op, empty at first.
        memory: Budget in MiB.
        emit: Receiver of progress and messages.
        reads: Input columns that the op or a later step reads, ROW_NUMBER included.
        keeps: Input columns that a later step reads, ROW_NUMBER included.
    """

    name: str
    folder: Path
    memory: int
    emit: Emit
    reads: tuple[str, ...]
    keeps: tuple[str, ...]

    def materialize(self, rows: Flow) -> Flow:
        """Return the rows from a spill file, written first unless the rows are already materialized."""
        if rows.materialized:
            return rows
        schema = pa.schema([rows.schema().field(name) for name in self.reads])
        counted = Counted(rows)
        sized = ((batch.num_rows, batch) for batch in counted.batches(self.reads))
        spill = SpillFile.write(self.track(f"read for {self.name}", sized, None), schema, self.folder / "rows.arrow")
        return Materialized(spill, counted.count)

    def track(self, task: str, parts: Iterable[tuple[int, Part]], total: int | None) -> Iterator[Part]:
        """Yield the parts of a task, given with their numbers of rows, and emit progress."""
        done = 0
        for rows, part in parts:
            done += rows
            self.emit(Progress(task, done, total))
            yield part
        self.emit(Progress(task, done, done))
