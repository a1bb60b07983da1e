"""Applying a fitted plan: shards of a split, on any engine and anywhere, each to a parquet file of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.etl.cold_keys import with_rows, without_idle
from recsys_cli.etl.engine import Engine
from recsys_cli.etl.executor import Executor
from recsys_cli.etl.fit import row_numbers
from recsys_cli.etl.labels import count_lost, with_exact_labels
from recsys_cli.etl.missing_times import missing_times, without_time
from recsys_cli.etl.staging import Staged
from recsys_cli.etl.write import count_missing, sweep, typed_table, write_table
from recsys_cli.events import Emit, Progress
from recsys_cli.features.columns import ROW_NUMBER, TRAIN_ROW, USER_HASH
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.hashing import hash_values
from recsys_cli.features.program import FLAT, Gather, PlanStep
from recsys_cli.features.schema import UNSEEN, Role, Schema
from recsys_cli.features.split import SPLITS, TRAIN


@dataclass(frozen=True)
class Written:
    """What there is to know of rows that were written.

    Attributes:
        rows: How many.
        missing: For each categorical column how many values are null and unseen, and how many there are.
        lost: For each label how many are null and how many do not fit their type, where that can be, and how many there are.
    """

    rows: int = 0
    missing: Mapping[str, Counter[str]] | None = None
    lost: Mapping[str, Counter[str]] | None = None

    def __add__(self, other: Written) -> Written:
        """Return what there is to know of both."""
        missing, lost = _added(self.missing, other.missing), _added(self.lost, other.lost)
        return Written(self.rows + other.rows, missing, lost)


def _added(
    some: Mapping[str, Counter[str]] | None, others: Mapping[str, Counter[str]] | None
) -> dict[str, Counter[str]]:
    both = {name: Counter(counts) for name, counts in (some or {}).items()}
    for name, counts in (others or {}).items():
        both.setdefault(name, Counter()).update(counts)
    return both


@dataclass(frozen=True)
class Transform:
    """The work on one shard of a split: runs in a thread, or on a worker.

    Attributes:
        engine: What computes.
        fitted: Everything learnt, and for the flat layout the tables by id (`flattened`).
        staged: The rows.
        schema: What is written.
        split: Which rows.
        folder: Where the shards go.
        user: The raw column of users, where those without an id of their own are to be told apart; None where there are none.
    """

    engine: Engine
    fitted: FittedPlan
    staged: Staged
    schema: Schema
    split: str
    folder: Path
    user: str | None = None

    def __call__(self, shard: int) -> Written:
        """Write a shard and return what there is to know of it."""
        in_train = self.split == SPLITS[TRAIN]
        widens = any(column.ragged for column in self.schema.in_table(None))
        rows = self.staged.read(self.split, shard, shuffled=widens)
        if not rows.num_rows:
            return Written()
        order = self.staged.order(shard, rows.num_rows) if in_train and not widens else None
        if in_train:
            rows = rows.append_column(TRAIN_ROW, row_numbers(shard, rows.num_rows, order))
        rows, numbers = _without_numbers(rows)
        steps = without_idle(_steps(self.fitted), self.fitted, train=in_train)
        computed = self.engine.apply(with_exact_labels(steps, self.fitted, rows), self.fitted, rows)
        lost = count_lost(computed, self.schema)
        table = with_rows(typed_table(computed, self.schema.in_table(None)), computed, steps)
        self._check_times(table)
        if self.user is not None:
            table = table.append_column(USER_HASH, self._user_hashes(table, rows.select([self.user])))
        if order is not None:
            table = table.take(pa.array(order))  # numbers are moved here, and what was read may be texts
        if numbers is not None:
            table = table.append_column(ROW_NUMBER, numbers if order is None else _taken(numbers, order))
        write_table(table, self.folder / f"{shard:05d}.parquet")
        missing = count_missing(table, self.schema)
        for label, counts in lost.items():
            missing[label]["null"] += counts["null"]  # which whole numbers do not show
        return Written(table.num_rows, missing, lost)

    def _check_times(self, table: pa.Table) -> None:
        """Check that an op has left no interaction without a time; sampled negatives have none.

        Raises:
            DataError: Some have none.
        """
        for column in self.schema.in_table(None):
            if column.role is Role.TIMESTAMP and not column.ragged:
                lacks = without_time(table.column(column.name))
                if lacks is None:
                    continue
                for sampled in self.schema.select(lambda one: one.role is Role.SAMPLED):
                    lacks &= table.column(sampled.name).to_numpy() == 0
                if lacks.any():
                    where = f"in the prepared rows of {self.split}"
                    raise missing_times(column.name, int(lacks.sum()), len(lacks), where)

    def _user_hashes(self, table: pa.Table, raw: pa.Table) -> pa.Array:
        """Return a hash of the user of each prepared row who has no id of its own, of the raw rows' column; null for others."""
        column = self.schema.only(Role.USER)
        ids = table.column(column.name).to_numpy()
        unknown = (ids == UNSEEN) | (ids >= column.own_ids.stop)
        hashes = np.zeros(len(ids), dtype=np.uint64)
        if unknown.any():
            hashes[unknown] = hash_values(raw.filter(pa.array(unknown)).column(0).combine_chunks())
        return pa.array(hashes, mask=~unknown)


def _taken(numbers: pa.ChunkedArray, order: npt.NDArray[np.int64]) -> pa.Array:
    """Return row numbers in another order, in less time than Arrow takes for it."""
    if numbers.null_count:
        return numbers.take(pa.array(order)).combine_chunks()
    return pa.array(numbers.to_numpy()[order])


def _without_numbers(rows: pa.Table) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """Return rows without their numbers in the raw input, which are nothing to compute with, and these."""
    if ROW_NUMBER not in rows.column_names:
        return rows, None
    return rows.drop_columns([ROW_NUMBER]), rows.column(ROW_NUMBER)


def transform(task: Transform, executor: Executor, emit: Emit, *, done: int, total: int) -> Written:
    """Prepare all shards of a split.

    Args:
        task: The work on one of them.
        executor: Where it is done.
        emit: Told how far it is.
        done: Rows of other splits that are done already.
        total: Rows of all splits.
    """
    written = Written()
    for part in executor.map(task, range(len(task.staged.shards[task.split]))):
        written += part
        emit(Progress("transform", done + written.rows, total))
    sweep(task.folder)
    return written


def prepare(engine: Engine, fitted: FittedPlan, rows: pa.Table, schema: Schema) -> pa.Table:
    """Send raw rows that the plan was not fitted on through it, and bring them to the schema's columns and types."""
    steps = without_idle(_steps(fitted), fitted, train=False)
    return typed_table(engine.apply(steps, fitted, rows), schema.in_table(None))


def _steps(fitted: FittedPlan) -> list[PlanStep]:
    """Return all that rows of the interactions go through."""
    flat = _flat_steps(fitted) if any(position == FLAT for position, _ in fitted.state) else []
    return [*fitted.program.transforms(None), *flat]


def flattened(fitted: FittedPlan, tables: Mapping[str, pa.Table]) -> FittedPlan:
    """Return the plan with the tables by id as part of its state, so that their columns come to the interactions."""
    state = dict(fitted.state)
    for step in _flat_steps(fitted):
        assert isinstance(step.op, Gather)
        for name, column in zip(step.op.states, step.op.columns, strict=True):
            state[FLAT, name] = pa.table({column: tables[step.op.table].column(column)})
    return replace(fitted, state=state)


def _flat_steps(fitted: FittedPlan) -> list[PlanStep]:
    """Return what brings every column of a table by id that is kept to the interactions."""
    steps = []
    for key in fitted.program.keys:
        columns = tuple(
            name for name, _, home in fitted.program.columns if home == key and name not in fitted.plan.drop
        )
        if columns:
            steps.append(PlanStep(FLAT, Gather(key, columns), None, 0, columns))
    return steps
