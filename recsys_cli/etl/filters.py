"""Interactions before the split: the ops that select or compute rows, and checks of labels and times."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.events import Emit, Message
from recsys_cli.features.columns import EXACT, ROW_NUMBER
from recsys_cli.features.schema import Role, Schema
from recsys_cli.features.spec import Spec
from recsys_cli.ops import LambdaOp
from recsys_cli.ops.expression import columns as columns_of
from recsys_cli.ops.expression import kind, kind_of_type, parse
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.flow import Computed, Counted, Flow, Numbered, OpContext
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import Program
from recsys_cli.ops.scratch import Rows
from recsys_cli.ops.steps import PlanStep


def with_exact_labels(steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> list[PlanStep]:
    """Add steps that keep a float64 copy of each label before a cast to integers with an effect."""
    labels = fitted.plan.labels
    extended: list[PlanStep] = []
    for step in steps:
        for label in labels:
            expression = step.op.casts.get(label)
            if expression is not None and not _always_fits(expression, rows):
                name = EXACT + label
                op = LambdaOp(expression=expression, output=name, dtype="float64")
                extended.append(replace(step, op=op, writes=(name,)))
        extended.append(step)
    return extended


def _always_fits(expression: str, rows: pa.Table) -> bool:
    """Whether an expression is true or false, and never null, in all rows."""
    parsed = parse(expression)
    reads = columns_of(parsed)
    if not all(name in rows.column_names and _without_nulls(rows.column(name)) for name in reads):
        return False
    try:
        kinds = {name: kind_of_type(rows.schema.field(name).type, name) for name in reads}
        return kind(parsed, kinds) == "truth"
    except ConfigError:  # an earlier step casts the column to a supported type
        return False


def _without_nulls(values: pa.ChunkedArray) -> bool:
    if values.null_count:
        return False
    return not (pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())


def count_lost(table: pa.Table, schema: Schema) -> dict[str, Counter[str]]:
    """Count the nulls and overflows of labels after `with_exact_labels`; sampled negatives may have null labels."""
    sampled = next((column.name for column in schema.in_table(None) if column.role is Role.SAMPLED), None)
    lost = {}
    for label in schema.labels:
        if EXACT + label.name not in table.column_names:
            continue
        exact = table.column(EXACT + label.name).to_numpy()
        null = np.isnan(exact)
        if sampled is not None:
            null &= table.column(sampled).to_numpy() == 0
        wrong = int(_unfit(exact, label.dtype).sum())
        lost[label.name] = Counter({"null": int(null.sum()), "unfit": wrong, "rows": len(exact)})
    return lost


def refuse_lost(lost: Mapping[str, Mapping[str, int]], where: str, schema: Schema) -> None:
    """Refuse labels that overflow their type."""
    for name, counts in lost.items():
        if counts.get("unfit"):
            raise unfit(name, counts["unfit"], f"of {counts['rows']:,} rows of {where}", schema[name].dtype)


def unfit(label: str, count: int, where: str, dtype: str) -> DataError:
    """Return the error for labels that overflow their type."""
    return DataError(
        f"the label {label}: {count:,} {where} overflow {dtype}",
        hint="set a wider type for its op in features.ops, such as dtype: float32",
    )


def check_fits(label: str, exact: pa.ChunkedArray, dtype: str) -> None:
    """Refuse values of a label (float64, NaN for null) that overflow its integer type."""
    wrong = int(_unfit(exact.to_numpy(), dtype).sum())
    if wrong:
        raise unfit(label, wrong, "rows of one batch", dtype)


def _unfit(exact: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.bool_]:
    """Return a mask of overflows of an integer type after truncation; False for NaN."""
    ends = np.iinfo(dtype)
    low, high = float(ends.min), float(ends.max)  # for int64 rounded to ±2^63, where the spacing of float64 is 1,024
    return (exact < low) & (exact <= low - 1) | (exact > high) & (exact >= high + 1)


@dataclass(frozen=True)
class Timed:
    """Interactions with a check of their times.

    Attributes:
        rows: The interactions; with ROW_NUMBER after filters.
        raw: The reader of the raw files, for the position of a row in an error; None if there is none.
    """

    rows: Rows
    column: str
    raw: Reader | None = None

    def schema(self) -> pa.Schema:
        """See `Rows.schema`."""
        return self.rows.schema()

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows; rows without a time are an error after the last one."""
        done = missing = 0
        first = None
        for batch in self.rows.batches():
            mask = without_time(batch.column(self.column))
            if mask is not None:
                positions = np.flatnonzero(mask)
                missing += len(positions)
                if first is None:
                    at = int(positions[0])
                    first = batch.column(ROW_NUMBER)[at].as_py() if ROW_NUMBER in batch.column_names else done + at
            done += batch.num_rows
            yield batch
        if first is not None:
            raise missing_times(self.column, missing, done, row_of(first, self.raw))


def row_of(number: int, raw: Reader | None) -> str:
    """Return the position of a row in its file, for an error; None for rows without files."""
    if raw is None:
        return f"row {number + 1}"
    for file in raw.table.files:
        reader = replace(raw, table=replace(raw.table, files=(file,)), rejected=[])
        rows = sum(batch.num_rows for batch in reader.batches())
        if number < rows:
            return f"row {number + 1} of {file}"
        number -= rows
    return f"row {number + 1}"


def timed(sources: Mapping[str, Rows], readers: Mapping[str, Reader], column: str | None) -> dict[str, Rows]:
    """Add the check of times to interactions, except without a time column before the split."""
    if column is None:
        return dict(sources)
    return {
        name: Timed(rows, column, readers.get(name)) if column in rows.schema().names else rows
        for name, rows in sources.items()
    }


def without_time(values: pa.ChunkedArray) -> npt.NDArray[np.bool_] | None:
    """Return a mask of null, NaN and infinite times; None if there are none."""
    missing = values.is_null().to_numpy() if values.null_count else None
    if pa.types.is_floating(values.type):
        not_finite = ~np.isfinite(values.cast(pa.float64()).fill_null(0.0).to_numpy())
        if not_finite.any():
            missing = not_finite if missing is None else not_finite | missing
    return missing


def missing_times(column: str, missing: int, rows: int, where: str) -> DataError:
    """Return the error about rows without a time; `where` is the position of the first one."""
    return DataError(
        f"{missing:,} of {rows:,} interactions have no {column}, the first is {where}, so their order is unknown",
        hint=f"drop them: put {{op: Dropna, columns: [{column}]}} first in features.ops; or, if nothing depends on the "
        "time, remove features.timestamp",
    )


Part = Literal["train", "held-out", "new"]
"""The kind of interactions: train (or all before the split), held-out ones of a files split, or new ones of a fitted plan."""


@dataclass(frozen=True)
class RowCount:
    """The numbers of rows before and after an op."""

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
    ops = filters_of(program, part)
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


def filters_of(program: Program, part: Part) -> list[tuple[int, Op]]:
    """Return the ops before the split that act on a kind of interactions, with their positions."""
    ops = [(index, op) for index, op in program.rows if op.acts and not (part == "new" and op.drops_only)]
    return [(index, op) for index, op in ops if not (part == "held-out" and op.train_only)]


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
