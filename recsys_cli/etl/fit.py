"""Cold keys: keys of a joined table, absent from the vocabulary, with rows in the table by id.

Cold keys share an embedding and keep their own features: a table has one row per id, followed by one row per cold key.
They depend neither on held-out rows nor on the engine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.cpu import Threads
from recsys_cli.etl.counts import Column, CountFile, merge_counts, num_partitions, with_unseen
from recsys_cli.etl.engine import Aggregates, Engine, Executor, PassSteps
from recsys_cli.etl.staging import Staged
from recsys_cli.events import Emit, Progress
from recsys_cli.features.columns import REST, ROW_WEIGHT, TRAIN_ROW, row_column
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.features.split import SPLITS, TRAIN
from recsys_cli.ops import Categorify, JoinExternal
from recsys_cli.ops.categorify import counts_of
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.join_external import keyed
from recsys_cli.ops.op import Op
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.ops.program import COLD, GATHERED, Gather, Locate, PlanStep, Program, State


def find_cold(
    op: Categorify, key: str, joins: Sequence[JoinExternal], tables: Mapping[str, pa.Table], state: State, index: int
) -> pa.Table:
    """Return the cold keys of a key column in ascending order; `op` at `index` in the plan encodes it.

    Returns:
        Columns: the key (`value`), its `row` in the table by id, its shared `id`, and `count` 0.
    """
    vocabulary = state[index, op.vocabulary_of(key)]
    values = vocabulary.column("value").combine_chunks()
    columns = [keyed(join, tables[join.table], values.type).column(join.on) for join in joins]
    keys = pa.chunked_array([chunk for column in columns for chunk in column.chunks], values.type)
    cold = keys.filter(pc.invert(pc.is_in(keys, value_set=values))).unique()
    cold = cold.take(pc.sort_indices(cold))
    first = FIRST + len(values) + op.buckets
    return pa.table({
        "value": cold,
        "row": np.arange(first, first + len(cold), dtype=np.int32),
        "id": op.encoding(key, {op.vocabulary_of(key): vocabulary})(cold),
        "count": np.zeros(len(cold), dtype=np.int64),
    })  # fmt: skip


def counted(cold: pa.Table, merged: pa.Table) -> pa.Table:
    """Set the train counts of cold keys: above 0 for values cut from the vocabulary as too rare."""
    counts = counts_of(cold.select(["value"]), merged)
    return cold.set_column(cold.schema.get_field_index("count"), "count", counts)


def shared_ids(cold: pa.Table) -> pa.Array:
    """Return the encoded id of each row of a table: the row number; of cold keys, the shared id."""
    first = cold.column("row")[0].as_py()
    return pa.array(np.concatenate([np.arange(first, dtype=np.int32), cold.column("id").to_numpy()]))


def without_idle(steps: Sequence[PlanStep], fitted: FittedPlan, *, train: bool) -> list[PlanStep]:
    """Leave out lookups of cold keys for columns without any."""
    return [step for step in steps if not isinstance(step.op, Locate) or fitted.has_cold(step.op.key, train=train)]


def with_rows(prepared: pa.Table, computed: pa.Table, steps: Sequence[PlanStep]) -> pa.Table:
    """Append the table row of each key with a Locate step to prepared rows."""
    for step in steps:
        if isinstance(step.op, Locate):
            ids, rows = (computed.column(name).to_numpy() for name in (step.op.key, step.op.output))
            prepared = prepared.append_column(row_column(step.op.key), pa.array(np.maximum(ids, rows)))
    return prepared


_SPLIT = SPLITS[TRAIN]
_MERGE_ROWS = 1 << 18


@dataclass(frozen=True)
class FitTask:
    """The aggregates of a group of train shards in one pass: a task of an executor.

    Attributes:
        fitted: The plan with the state of earlier passes.
        number: Number of the pass, from 0.
        partitions: Number of partitions of the counts of values; 1 to return these.
        folder: The scratch folder for the partitions.
    """

    engine: Engine
    fitted: FittedPlan
    staged: Staged
    number: int
    partitions: int
    folder: Path

    def __call__(self, shards: range) -> dict[Column, pa.Table | CountFile]:
        """Return the merged aggregates of the shards."""
        merged = _MergedAggregates(self.fitted.program, self.number)
        for shard in shards:
            merged.add(self._of(shard))
        if self.partitions == 1:
            return {**merged.result()}
        counted = counters(self.fitted.program, self.number)
        return {
            (index, name): CountFile.write(table, self.partitions, self.folder) if index in counted else table
            for (index, name), table in merged.result().items()
        }

    def _of(self, shard: int) -> Aggregates:
        program = self.fitted.program
        needed = program.columns_read(self.number)
        steps = self._steps()
        numbered = any(step.op.needs_row_numbers for step, _ in steps)
        sampled = {program.draw.output} if program.draw else set()
        columns = list(dict.fromkeys([*needed, *sampled]))
        rows = self.staged.read(_SPLIT, shard, columns=columns, shuffled=numbered)
        if numbered:
            rows = rows.append_column(TRAIN_ROW, row_numbers(shard, rows.num_rows))
        if program.draw is None:
            return self.engine.learn(steps, self.fitted, rows)
        interactions = rows.filter(pc.equal(rows.column(program.draw.output), 0))
        aggregates = self.engine.learn(self._steps(sampled=False), self.fitted, interactions)
        return aggregates | self.engine.learn(self._steps(sampled=True), self.fitted, rows)

    def _steps(self, *, sampled: bool | None = None) -> PassSteps:
        steps = self.fitted.program.pass_steps(self.number, None, sampled=sampled)
        kept = without_idle([step for step, _ in steps], self.fitted, train=True)
        return [(step, verb) for step, verb in steps if step in kept]

    def empty(self) -> Aggregates:
        """Return the aggregates of no rows, for the types of the state."""
        rows = self.staged.schema.empty_table()
        rows = rows.append_column(TRAIN_ROW, row_numbers(0, 0))
        return self.engine.learn(self._steps(), self.fitted, rows)


def counters(program: Program, number: int) -> dict[int, Categorify]:
    """Return the ops that count values of the interactions in a pass, by position."""
    return {step.index: step.op for step in program.fits(number, None) if isinstance(step.op, Categorify)}


def fit(
    plan: FeaturePlan, staged: Staged, engine: Engine, executor: Executor, emit: Emit, *, scratch: Path
) -> FittedPlan:
    """Fit a plan on train."""
    fitted = FittedPlan(plan, staged.inputs, {})
    program = plan.compile(staged.inputs)
    for number in range(program.passes + 1):
        tables = Tables(engine, staged, program, fitted, number)
        state: Aggregates = dict(fitted.state) | tables.gathered()
        fitted = _with_state(fitted, program, state)
        task = FitTask(engine, fitted, staged, number, num_partitions(staged.rows[_SPLIT]), scratch)
        aggregates, dropped = _fit_interactions(task, executor, emit)
        aggregates |= tables.aggregate()
        state |= _finish(program, number, aggregates)
        state |= with_unseen(state, dropped)
        state |= _cold(program, number, aggregates, state, staged)
        fitted = _with_state(fitted, program, state)
    return FittedPlan(plan, staged.inputs, fitted.state)


def _with_state(fitted: FittedPlan, program: Program, state: Mapping[tuple[int, str], pa.Table]) -> FittedPlan:
    """Return the plan with a partial state and its program, whose compilation needs the complete state."""
    copy = replace(fitted, state=state)
    copy.__dict__["program"] = program
    return copy


def _fit_interactions(task: FitTask, executor: Executor, emit: Emit) -> tuple[Aggregates, Mapping[Column, int]]:
    """Return the aggregates of a pass, and how often a column has values that these leave out."""
    program, staged = task.fitted.program, task.staged
    if not program.fits(task.number, None):
        return {}, {}
    groups = shard_groups(len(staged.shards[_SPLIT]))
    merged = _MergedAggregates(program, task.number)
    files: list[tuple[Column, CountFile]] = []
    total = staged.rows[_SPLIT]
    for done, partial in enumerate(executor.map(task, groups) if groups else iter([task.empty()]), 1):
        files += [(at, table) for at, table in partial.items() if isinstance(table, CountFile)]
        merged.add({at: table for at, table in partial.items() if not isinstance(table, CountFile)})
        emit(Progress(f"fit, pass {task.number + 1}", total * done // max(1, len(groups)), total))
    aggregates, ops = merged.result(threads=None), counters(program, task.number)
    if not files:
        return aggregates, {}
    joins = tuple(join for _, join in program.joins)
    counted, dropped = merge_counts(files, ops, joins, staged.tables, task.partitions, executor)
    return aggregates | counted, dropped


def shard_groups(shards: int) -> list[range]:
    """Return groups of shards for a task each; their size grows with the root of the number of shards.

    Independent of the executor, because float sums depend on the order of addition.
    """
    size = max(1, math.isqrt(shards) // 2)
    return [range(start, min(start + size, shards)) for start in range(0, shards, size)]


class _MergedAggregates:
    """The aggregates of a pass, merged early enough to bound the memory."""

    def __init__(self, program: Program, number: int) -> None:
        steps = program.fits(number, None)
        self._ops = {step.index: cast("Op", step.op) for step in steps}
        self._parts: dict[tuple[int, str], list[pa.Table]] = defaultdict(list)

    def add(self, aggregates: Aggregates) -> None:
        for key, table in aggregates.items():
            parts = self._parts[key]
            parts.append(table)
            if sum(part.num_rows for part in parts[1:]) > max(_MERGE_ROWS, 2 * parts[0].num_rows):
                self._parts[key] = [self._merge(key)]

    def result(self, *, threads: int | None = 1) -> Aggregates:
        """Return the merged aggregates; one thread by default, because tasks already run in parallel."""
        return dict(zip(self._parts, Threads(threads).map(self._merge, self._parts), strict=True))

    def _merge(self, key: tuple[int, str]) -> pa.Table:
        return self._ops[key[0]].merge(self._parts[key])


def _finish(program: Program, number: int, aggregates: Aggregates) -> Aggregates:
    state: Aggregates = {}
    for step in program.steps:
        if step.fitted and step.after == number:
            op = cast("Op", step.op)
            merged = {name: table for (index, name), table in aggregates.items() if index == step.index}
            fitted = op.finalize({name: merged[name] for name in op.learns})
            state |= {(step.index, name): table for name, table in fitted.items()}
    return state


def _cold(program: Program, number: int, aggregates: Aggregates, state: Aggregates, staged: Staged) -> Aggregates:
    cold_keys: Aggregates = {}
    for key in program.keys:
        index, op, after = _encoder(program, key)
        if after != number:
            continue
        cold = find_cold(op, key, [join for _, join in program.joins if join.on == key], staged.tables, state, index)
        if cold.num_rows and state[index, key + REST].column("unseen")[0].as_py():
            cold = counted(cold, aggregates[index, key])
        cold_keys[COLD, key] = cold
    return cold_keys


def _encoder(program: Program, key: str) -> tuple[int, Categorify, int]:
    return next((s.index, cast("Categorify", s.op), s.after) for s in program.steps if key in s.op.encodes)


@dataclass
class Tables:
    """The tables by id at the start of a pass: one row per id, followed by one row per cold key.

    Attributes:
        fitted: The plan with the state of earlier passes.
        number: Number of completed passes.
    """

    engine: Engine
    staged: Staged
    program: Program
    fitted: FittedPlan
    number: int

    def aggregate(self) -> Aggregates:
        """Return the aggregates of this pass, each row weighted by its number of interactions."""
        aggregates: Aggregates = {}
        for key in self.program.keys:
            steps = self.program.pass_steps(self.number, key)
            if steps:
                raw = self.raw(key)
                weights = self._weights(key, raw.num_rows)
                positions = np.flatnonzero(weights)  # the other rows have no interaction in train
                raw = raw.take(pa.array(positions)).append_column(ROW_WEIGHT, pa.array(weights[positions]))
                partial = self.engine.learn(steps, self.fitted, raw)
                ops = self.fitted.plan.ops
                aggregates |= {at: ops[at[0]].merge([table]) for at, table in partial.items()}
        return aggregates

    def gathered(self) -> Aggregates:
        """Return the columns by id for the lookup joins after this pass."""
        state: Aggregates = {}
        for step in self.program.steps:
            if isinstance(step.op, Gather) and step.after == self.number:
                table = self._columns_before(step)
                for name, column in zip(step.op.states, step.op.columns, strict=True):
                    state[GATHERED, name] = pa.table({column: table.column(column)})
        return state

    def _columns_before(self, gather: PlanStep) -> pa.Table:
        assert isinstance(gather.op, Gather)
        steps: list[PlanStep] = []
        needed = set(gather.op.columns)
        for step in reversed(self.program.steps[: self.program.steps.index(gather)]):
            # Steps without an effect on these columns may depend on a later pass.
            if step.home == gather.op.table and step.acts and needed & set(step.writes):
                steps.append(step)
                needed |= set(step.op.reads_to_apply)
        return self.engine.apply(steps[::-1], self.fitted, self.raw(gather.op.table))

    def final(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield each key and its table after all steps."""
        for key in self.program.keys:
            yield key, self.engine.apply(self.program.transforms(key), self.fitted, self.raw(key))

    def raw(self, key: str) -> pa.Table:
        """Return the joined raw columns by id, followed by those of cold keys."""
        index, encoder, _ = _encoder(self.program, key)
        table = self._joined(key, self.fitted.state[index, encoder.vocabulary_of(key)])
        buckets = table.take(pa.array(np.zeros(encoder.buckets, dtype=np.int64)))  # null, like the first row
        cold = self.fitted.cold_keys(key)
        cold_rows = [] if cold is None else [self._joined(key, cold).slice(FIRST)]
        return pa.concat_tables([table, buckets, *cold_rows])

    def _joined(self, key: str, keys: pa.Table) -> pa.Table:
        columns: dict[str, pa.ChunkedArray] = {}
        for _, op in self.program.joins:
            if op.on == key:
                joined = self.engine.join(op, self.staged.tables[op.table], keys)
                columns |= {name: joined.column(name) for name in joined.column_names}
        return pa.table(columns)

    def _weights(self, key: str, rows: int) -> np.ndarray:
        index, op, _ = _encoder(self.program, key)
        counts = self.fitted.state[index, op.counts_of(key)].column("count")
        rest = self.fitted.state[index, key + REST]
        weights = np.zeros(rows, dtype=np.int64)
        # UNSEEN counts unseen values of hash buckets as well (their joined columns are equal), but not cold keys.
        weights[NULL], weights[UNSEEN] = rest.column("null")[0].as_py(), rest.column("unseen")[0].as_py()
        weights[FIRST : FIRST + len(counts)] = counts.to_numpy()
        if (cold := self.fitted.cold_keys(key)) is not None:
            weights[cold.column("row").to_numpy()] = cold.column("count").to_numpy()
            weights[UNSEEN] -= pc.sum(cold.column("count")).as_py()
        return weights


def row_numbers(shard: int, rows: int, order: npt.NDArray[np.int64] | None = None) -> pa.Array:
    """Return a unique number for each row of a train shard, by its position in the final order.

    `order` is the permutation from the final to the current order of rows; None for rows in their final order.
    """
    positions = np.arange(rows, dtype=np.uint64)
    if order is not None:
        positions[order] = np.arange(rows, dtype=np.uint64)
    return pa.array(positions + (np.uint64(shard) << np.uint64(32)))
