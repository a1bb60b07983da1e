"""Ops of phase "rows": they choose the interactions and compute what takes several of them, before the split, globally.

They run outside the engines, so that every engine starts from the same rows: a module per op, in a table, with
`choose(op, rows, context)`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, cast

import polars as pl
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.etl.filters.flow import Computed, Counted, Flow, Numbered, OpContext
from recsys_cli.etl.filters.ops import MODULES
from recsys_cli.etl.implementations import load
from recsys_cli.etl.labels import check_fits
from recsys_cli.etl.polars_engine import lambda_op
from recsys_cli.etl.polars_engine.ops import MODULES as ON_POLARS
from recsys_cli.etl.spill import Rows
from recsys_cli.events import Emit, Message
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.ops import LambdaOp
from recsys_cli.features.ops.op import Op
from recsys_cli.features.program import Program
from recsys_cli.features.spec import Spec

Part = Literal["train", "held-out", "new"]
"""Which interactions: those to learn from (and to split), given ones that are held out, or new ones for a fitted plan."""


@dataclass(frozen=True)
class RowCount:
    """What one op has done to the number of rows.

    Attributes:
        index: Position of the op in the plan.
        name: Name of the op.
        title: How a message names it.
        rows_in: Rows before it.
        rows_out: Rows after it.
    """

    index: int
    name: str
    title: str
    rows_in: int
    rows_out: int


@dataclass(frozen=True)
class Chosen:
    """The interactions that there are, in order, with the columns that are needed from now on.

    Attributes:
        rows: The interactions; with ROW_NUMBER where some op chose or computed.
        columns: Their columns.
        ops: The ops, with their positions and the rows after each; the rows before the first come first.
    """

    rows: Rows
    columns: tuple[str, ...] = ()
    ops: tuple[tuple[int, Op | None, Counted], ...] = ()

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        schema = self.rows.schema()
        return pa.schema([schema.field(name) for name in self.columns]) if self.ops else schema

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows."""
        return self.ops[-1][2].batches(self.columns) if self.ops else self.rows.batches()

    @property
    def counts(self) -> tuple[RowCount, ...]:
        """What each op has done, once somebody has gone over all rows."""
        counts = []
        for (_, _, before), (index, op, after) in zip(self.ops, self.ops[1:], strict=False):
            assert op is not None
            counts.append(RowCount(index, op.name, op.title, before.count, after.count))
        return tuple(counts)

    def check(self) -> None:
        """Check that rows are left, once somebody has gone over all of them.

        Raises:
            DataError: An op has left out all that there were; the message names it.
        """
        for count in self.counts:
            if count.rows_in and not count.rows_out:
                raise DataError(
                    f"{count.title} leaves none of {count.rows_in:,} rows", hint="ask for less, or take the op out"
                )

    def report(self, emit: Emit) -> None:
        """Say what each op has done to the number of rows, once somebody has gone over all of them."""
        for count in self.counts:
            if count.rows_out != count.rows_in:
                emit(Message(f"{count.title}: {count.rows_in:,} rows, of which {count.rows_out:,} are left"))

    def discard(self) -> None:
        """Delete all scratch files: nobody will go over the rows any more."""
        if self.ops:
            self.ops[-1][2].discard()

    def estimated_rows(self, raw: int) -> int:
        """Return how many rows there are, where that is known before they are gone over.

        Groups count as the rows that they are made of, because their size depends on that.

        Args:
            raw: An estimate of the rows before the first op.
        """
        before = itertools.takewhile(lambda step: not (step[1] and step[1].replaces), self.ops)
        known = [rows.most for _, _, rows in before if rows.most is not None]
        return known[-1] if known else raw


def choose_rows(
    program: Program,
    source: Rows,
    folder: Path,
    emit: Emit,
    *,
    part: Part = "train",
    memory: int = 1024,
    labels: Collection[str] = (),
) -> Chosen:
    """Send the raw interactions through all ops up to the last one that chooses rows; without such ops nothing is done.

    What looks at all rows does so here; what looks at each on its own, while somebody goes over the result.

    Args:
        program: The plan for the tables, without problems.
        source: The raw interactions, with the columns that the program reads.
        folder: A scratch folder, to be made; it is needed as long as somebody goes over the result.
        emit: Told what is worth knowing.
        part: Which interactions: ops that only leave rows out are no matter of new ones, and KCore is none of held-out ones.
        memory: Budget in MiB.
        labels: Columns that have to fit the type that an op gives them.
    """
    ops = [(index, cast("Op", op)) for index, op in program.rows if op.acts and _is_for(op, part)]
    if not ops:
        return Chosen(source)
    counted = Counted(Numbered(source))
    columns = _Columns.of(program, [op for _, op in ops], counted.schema())
    done: list[tuple[int, Op | None, Counted]] = [(-1, None, counted)]
    for number, (index, op) in enumerate(ops):
        own = folder / str(number)
        own.mkdir(parents=True)
        context = OpContext(op.name, own, memory, emit, columns.before(number), columns.after(number))
        counted = Counted(_choose(op, counted, context, columns.written[number], labels))
        done.append((index, op, counted))
    return Chosen(counted, columns.before(len(ops)), tuple(done))


def _is_for(op: Op, part: Part) -> bool:
    """Whether an op has something to do with some interactions."""
    return not (part == "new" and op.drops_only) and not (part == "held-out" and op.train_only)


def _choose(
    op: Op, rows: Flow, context: OpContext, written: Mapping[str, Spec | None], labels: Collection[str]
) -> Flow:
    if op.phase == "rows":
        chosen: Flow = load(op, "filter", MODULES).choose(op, rows, context)
        return chosen
    computing = load(op, "polars", ON_POLARS)
    return Computed(rows, partial(_compute, op, computing.apply, tuple(written), frozenset(labels)))


def _compute(
    op: Op, apply: Callable[..., pl.LazyFrame], written: tuple[str, ...], labels: frozenset[str], batch: pa.Table
) -> pa.Table:
    """Compute the columns of an op that looks at each row on its own, as the Polars engine does.

    Raises:
        DataError: A label does not fit its type.
    """
    frame = pl.LazyFrame(batch.select([ROW_NUMBER, *op.reads]))  # the number, because an op may read nothing
    made = apply(op, {}, frame).collect().to_arrow()
    for label in labels & op.casts.keys():
        exact = LambdaOp(expression=op.casts[label], output=label, dtype="float64")
        found = lambda_op.apply(exact, {}, frame).select(label).collect().to_arrow()
        check_fits(label, found.column(label), str(made.schema.field(label).type))
    rows = batch.drop_columns([name for name in written if name in batch.column_names])
    for name in written:
        if name in made.column_names:
            rows = rows.append_column(name, made.column(name))
    return rows


@dataclass(frozen=True)
class _Columns:
    """Which columns there are between ops, and which of them somebody still needs.

    Attributes:
        have: The columns before each op, and after the last.
        live: Those of them that the op or somebody after it needs.
        written: What each op writes; None for a column that is no longer there after it.
    """

    have: list[tuple[str, ...]]
    live: list[frozenset[str]]
    written: list[Mapping[str, Spec | None]]

    @classmethod
    def of(cls, program: Program, ops: Sequence[Op], schema: pa.Schema) -> _Columns:
        """Go over the ops forward for what there is, and backward for what is needed."""
        specs: dict[str, Spec] = {field.name: Spec(field.type) for field in schema}
        have = [tuple(specs)]
        written: list[Mapping[str, Spec | None]] = []
        for op in ops:
            outputs: Mapping[str, Spec | None] = op.outputs({name: specs[name] for name in op.reads})
            kept = {ROW_NUMBER: specs[ROW_NUMBER]} if op.replaces else specs
            specs = {name: spec for name, spec in kept.items() if name not in outputs}
            specs |= {name: spec for name, spec in outputs.items() if spec is not None}
            written.append(outputs)
            have.append(tuple(specs))
        live = [_needed(program) | {ROW_NUMBER}]
        for op, made, there in zip(ops[::-1], written[::-1], have[-2::-1], strict=True):
            reads = there if op.reads_all else op.reads
            after = frozenset() if op.replaces else live[0] - set(made)
            live.insert(0, after | {ROW_NUMBER, *reads})
        return cls(have, live, written)

    def before(self, number: int) -> tuple[str, ...]:
        """Return the columns before an op that it or somebody after it needs."""
        return tuple(name for name in self.have[number] if name in self.live[number])

    def after(self, number: int) -> tuple[str, ...]:
        """Return the columns before an op that somebody after it needs."""
        return tuple(name for name in self.have[number] if name in self.live[number + 1])


def _needed(program: Program) -> frozenset[str]:
    """Return the columns of the interactions that are needed after the split."""
    made: set[str] = set()
    needed: set[str] = set()
    for step in (step for step in program.steps if step.home is None):
        needed |= set(step.op.reads) - made
        made |= set(step.writes)
    return frozenset(needed | {name for name, _, home in program.columns if home is None and name not in made})
