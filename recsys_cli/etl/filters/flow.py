"""Rows on their way through ops: lazily where each row stands for itself, from a scratch file where all have to be known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.etl.spill import Rows, SpillFile, typed
from recsys_cli.events import Emit, Progress
from recsys_cli.features.columns import ROW_NUMBER

Mask = npt.NDArray[np.bool_]
Part = TypeVar("Part")


class Flow(Protocol):
    """Rows in order, each with its ROW_NUMBER, any number of times."""

    @property
    def materialized(self) -> bool:
        """Whether they come from scratch files, so that going over them again parses nothing."""

    @property
    def most(self) -> int | None:
        """How many rows there are at most; None where nobody has counted."""

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have, ROW_NUMBER among them."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns; each batch in one piece of memory, and none empty."""

    def discard(self) -> None:
        """Delete the scratch files that the rows come from: nobody will ask for them any more."""


@dataclass(frozen=True)
class Numbered:
    """The raw rows, with their numbers, in the types of the first file; dictionaries as the values that they stand for."""

    source: Rows
    materialized: bool = False
    most: int | None = None

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        fields = [pa.field(field.name, plain(field.type)) for field in self.source.schema()]
        return pa.schema([*fields, pa.field(ROW_NUMBER, pa.int64())])

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows.

        Raises:
            DataError: A value does not fit the type that its column has in the first file.
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
    """Return a type without dictionaries, which a scratch file cannot hold where they differ from batch to batch."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type):
        return pa.list_(kind.value_type.value_type)
    return kind


@dataclass(frozen=True)
class Computed:
    """Rows, batch by batch through a function that looks at each row on its own, and may leave some out."""

    rows: Flow
    function: Callable[[pa.Table], pa.Table]

    @property
    def materialized(self) -> bool:
        """Whether the rows come from scratch files."""
        return self.rows.materialized

    @property
    def most(self) -> int | None:
        """How many rows there are at most."""
        return self.rows.most

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        return self.function(self.rows.schema().empty_table()).schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows."""
        for batch in self.rows.batches():
            rows = self.function(batch)
            if rows.num_rows:
                yield (rows if columns is None else rows.select(list(columns))).combine_chunks()

    def discard(self) -> None:
        """Delete the scratch files that the rows come from."""
        self.rows.discard()


def filter_rows(rows: Flow, keep: Callable[[pa.Table], Mask], wanted: Sequence[str]) -> Computed:
    """Leave out rows by a look at each on its own, and columns that nobody will look at any more."""
    return Computed(rows, partial(_filter_batch, keep, list(wanted)))


def _filter_batch(keep: Callable[[pa.Table], Mask], wanted: list[str], batch: pa.Table) -> pa.Table:
    mask = keep(batch)
    rows = batch.select(wanted)
    return rows if mask.all() else rows.filter(pa.array(mask))


@dataclass(frozen=True)
class Materialized:
    """Rows in a scratch file."""

    spill: SpillFile
    most: int
    materialized: bool = True

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        return self.spill.schema()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns."""
        return self.spill.batches(columns)

    def discard(self) -> None:
        """Delete the file."""
        self.spill.delete()


@dataclass(frozen=True)
class Masked:
    """Materialized rows without some of them.

    Attributes:
        rows: The rows.
        keep: Which of them, in order.
    """

    rows: Flow
    keep: Mask
    materialized: bool = True

    @property
    def most(self) -> int:
        """How many rows there are."""
        return int(np.count_nonzero(self.keep))

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        return self.rows.schema()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows that are kept, or some of their columns."""
        first = 0
        for batch in self.rows.batches(columns):
            keep = self.keep[first : first + batch.num_rows]
            first += batch.num_rows
            if keep.all():
                yield batch
            elif keep.any():
                yield batch.filter(pa.array(keep)).combine_chunks()

    def discard(self) -> None:
        """Delete the scratch files that the rows come from."""
        self.rows.discard()


@dataclass
class Counted:
    """Rows that are counted when somebody goes over all of them."""

    rows: Flow
    count: int = field(default=0, init=False)

    @property
    def materialized(self) -> bool:
        """Whether the rows come from scratch files."""
        return self.rows.materialized

    @property
    def most(self) -> int | None:
        """How many rows there are at most."""
        return self.rows.most

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        return self.rows.schema()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows."""
        count = 0
        for batch in self.rows.batches(columns):
            count += batch.num_rows
            yield batch
        self.count = count

    def discard(self) -> None:
        """Delete the scratch files that the rows come from."""
        self.rows.discard()


@dataclass(frozen=True)
class OpContext:
    """What an op has at hand while it looks at all rows.

    Attributes:
        name: Name of the op.
        folder: An empty scratch folder of its own.
        memory: Budget in MiB.
        emit: Told how far it is, and what is worth knowing.
        reads: Columns before it that it or somebody after it needs, ROW_NUMBER among them.
        wanted: Columns before it that somebody after it needs, ROW_NUMBER among them.
    """

    name: str
    folder: Path
    memory: int
    emit: Emit
    reads: tuple[str, ...]
    wanted: tuple[str, ...]

    def materialize(self, rows: Flow) -> Flow:
        """Return the rows from a scratch file: the same if they come from one, else they are written to one."""
        if rows.materialized:
            return rows
        schema = pa.schema([rows.schema().field(name) for name in self.reads])
        counted = Counted(rows)
        sized = ((batch.num_rows, batch) for batch in counted.batches(self.reads))
        spill = SpillFile.write(self.watch(f"read for {self.name}", sized, None), schema, self.folder / "rows.arrow")
        return Materialized(spill, counted.count)

    def watch(self, task: str, parts: Iterable[tuple[int, Part]], total: int | None) -> Iterator[Part]:
        """Tell how far a task is, while somebody goes over its parts, each with its number of rows."""
        done = 0
        for rows, part in parts:
            done += rows
            self.emit(Progress(task, done, total))
            yield part
        self.emit(Progress(task, done, done))
