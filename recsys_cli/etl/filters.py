"""Ops of phase "rows" before the split, outside the engines: filters, and computations over several interactions."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.etl.checks import check_fits
from recsys_cli.events import Emit, Message
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.spec import Spec
from recsys_cli.ops import LambdaOp
from recsys_cli.ops.flow import Computed, Counted, Flow, Numbered, OpContext
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import Program
from recsys_cli.ops.scratch import Rows

Part = Literal["train", "held-out", "new"]
"""The kind of interactions: train (or all before the split), held-out ones of a files split, or new ones of a fitted plan."""


@dataclass(frozen=True)
class RowCount:
    """The numbers of rows before and after an op.

    Attributes:
        index: Position of the op in the plan.
        title: Name of the op in messages.
    """

    index: int
    name: str
    title: str
    rows_in: int
    rows_out: int


@dataclass(frozen=True)
class FilteredRows:
    """The interactions after all filters, with the columns of later steps.

    Attributes:
        rows: The interactions; with ROW_NUMBER if there are ops.
        ops: Position, op and its output rows; the first entry, without an op, has the input rows.
    """

    rows: Rows
    columns: tuple[str, ...] = ()
    ops: tuple[tuple[int, Op | None, Counted], ...] = ()

    def schema(self) -> pa.Schema:
        """See `Rows.schema`."""
        schema = self.rows.schema()
        return pa.schema([schema.field(name) for name in self.columns]) if self.ops else schema

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows."""
        return self.ops[-1][2].batches(self.columns) if self.ops else self.rows.batches()

    @property
    def counts(self) -> tuple[RowCount, ...]:
        """The row counts of each op, after a complete pass."""
        counts = []
        for (_, _, before), (index, op, after) in itertools.pairwise(self.ops):
            assert op is not None
            counts.append(RowCount(index, op.name, op.title, before.count, after.count))
        return tuple(counts)

    def check(self) -> None:
        """Refuse an op without output rows, after a complete pass."""
        for count in self.counts:
            if count.rows_in and not count.rows_out:
                raise DataError(
                    f"{count.title} removes all {count.rows_in:,} rows", hint="relax its options, or remove the op"
                )

    def report(self, emit: Emit) -> None:
        """Emit the row counts of each op with a change, after a complete pass."""
        for count in self.counts:
            if count.rows_out != count.rows_in:
                emit(Message(f"{count.title}: {count.rows_in:,} rows in, {count.rows_out:,} rows out"))

    def discard(self) -> None:
        """Delete all scratch files, after the last pass."""
        if self.ops:
            self.ops[-1][2].discard()

    def estimated_rows(self, raw: int) -> int:
        """Estimate the number of rows before the first pass; `raw` estimates the raw ones.

        A group counts as its input rows, because the size of its output row grows with them.
        """
        before = itertools.takewhile(lambda step: not (step[1] and step[1].replaces), self.ops)
        bounds = [rows.most for _, _, rows in before if rows.most is not None]
        return bounds[-1] if bounds else raw


def choose_rows(
    program: Program,
    source: Rows,
    folder: Path,
    emit: Emit,
    *,
    part: Part = "train",
    memory: int = 1024,
    labels: Collection[str] = (),
) -> FilteredRows:
    """Apply all ops up to the last filter to the raw interactions; without filters, return them unchanged.

    Ops over all rows run here; row-wise ops run lazily, in each pass over the result. Pure filters skip new
    interactions; train-only ops such as KCore skip held-out ones. Scratch files stay until `discard`. `memory` is in
    MiB; `labels` are checked for overflow of the type that an op gives them.
    """
    ops = [(index, op) for index, op in program.rows if op.acts and _is_for(op, part)]
    if not ops:
        return FilteredRows(source)
    counted = Counted(Numbered(source))
    columns = _Columns.of(program, [op for _, op in ops], counted.schema())
    done: list[tuple[int, Op | None, Counted]] = [(-1, None, counted)]
    for number, (index, op) in enumerate(ops):
        op_folder = folder / str(number)
        op_folder.mkdir(parents=True)
        context = OpContext(op.name, op_folder, memory, emit, columns.before(number), columns.after(number))
        counted = Counted(_choose(op, counted, context, columns.written[number], labels))
        done.append((index, op, counted))
    return FilteredRows(counted, columns.before(len(ops)), tuple(done))


def _is_for(op: Op, part: Part) -> bool:
    return not (part == "new" and op.drops_only) and not (part == "held-out" and op.train_only)


def _choose(
    op: Op, rows: Flow, context: OpContext, written: Mapping[str, Spec | None], labels: Collection[str]
) -> Flow:
    if op.phase == "rows":
        return op.choose(rows, context)
    return Computed(rows, partial(_compute, op, tuple(written), frozenset(labels)))


def _compute(op: Op, written: tuple[str, ...], labels: frozenset[str], batch: pa.Table) -> pa.Table:
    frame = pl.LazyFrame(batch.select([ROW_NUMBER, *op.reads]))  # ROW_NUMBER, because an op may read no column
    computed = op.polars({}, frame).collect().to_arrow()
    for label in labels & op.casts.keys():
        exact = LambdaOp(expression=op.casts[label], output=label, dtype="float64")
        values = exact.polars({}, frame).select(label).collect().to_arrow()
        check_fits(label, values.column(label), str(computed.schema.field(label).type))
    rows = batch.drop_columns([name for name in written if name in batch.column_names])
    for name in written:
        if name in computed.column_names:
            rows = rows.append_column(name, computed.column(name))
    return rows


@dataclass(frozen=True)
class _Columns:
    """The columns between ops, and their liveness.

    Attributes:
        available: The columns before each op, and after the last one.
        live: Those read by the op or a later step.
        written: The outputs of each op; None for a removed column.
    """

    available: list[tuple[str, ...]]
    live: list[frozenset[str]]
    written: list[Mapping[str, Spec | None]]

    @classmethod
    def of(cls, program: Program, ops: Sequence[Op], schema: pa.Schema) -> _Columns:
        specs: dict[str, Spec] = {field.name: Spec(field.type) for field in schema}
        available = [tuple(specs)]
        written: list[Mapping[str, Spec | None]] = []
        for op in ops:
            outputs: Mapping[str, Spec | None] = op.outputs({name: specs[name] for name in op.reads})
            kept = {ROW_NUMBER: specs[ROW_NUMBER]} if op.replaces else specs
            specs = {name: spec for name, spec in kept.items() if name not in outputs}
            specs |= {name: spec for name, spec in outputs.items() if spec is not None}
            written.append(outputs)
            available.append(tuple(specs))
        live = [_needed(program) | {ROW_NUMBER}]
        for op, outputs, columns in zip(ops[::-1], written[::-1], available[-2::-1], strict=True):
            reads = columns if op.reads_all else op.reads
            after = frozenset() if op.replaces else live[0] - set(outputs)
            live.insert(0, after | {ROW_NUMBER, *reads})
        return cls(available, live, written)

    def before(self, number: int) -> tuple[str, ...]:
        """Return the columns before an op, for the op or a later step."""
        return tuple(name for name in self.available[number] if name in self.live[number])

    def after(self, number: int) -> tuple[str, ...]:
        """Return the columns before an op, for a later step."""
        return tuple(name for name in self.available[number] if name in self.live[number + 1])


def _needed(program: Program) -> frozenset[str]:
    """Return the columns for the steps after the split."""
    written: set[str] = set()
    needed = set(program.aside)
    for step in (step for step in program.steps if step.home is None):
        needed |= set(step.op.reads) - written
        written |= set(step.writes)
    return frozenset(needed | {name for name, _, home in program.columns if home is None and name not in written})
