"""Learning a plan's state from train: pass by pass, part by part, on any engine and anywhere."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl import aggregators
from recsys_cli.etl.cold_keys import counted, find_cold, without_idle
from recsys_cli.etl.engine import Engine, Learnt, Walk
from recsys_cli.etl.executor import Executor, Threads
from recsys_cli.etl.staging import Staged
from recsys_cli.events import Emit, Progress
from recsys_cli.features.columns import REST, ROW_WEIGHT, TRAIN_ROW
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.ops import Categorify
from recsys_cli.features.ops.op import Op
from recsys_cli.features.plan import FeaturePlan
from recsys_cli.features.program import COLD, GATHERED, Gather, PlanStep, Program
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.features.split import SPLITS, TRAIN

_SPLIT = SPLITS[TRAIN]
_MERGE_ROWS = 1 << 18


@dataclass(frozen=True)
class Learn:
    """One pass over some shards of train: runs in a thread, or on a worker.

    Attributes:
        engine: What computes.
        fitted: What is learnt so far.
        staged: The rows.
        number: Which pass it is.
    """

    engine: Engine
    fitted: FittedPlan
    staged: Staged
    number: int

    def __call__(self, shards: range) -> Learnt:
        """Return what the shards tell, merged: what goes from a worker to the process that waits for it."""
        merged = _Merged(self.fitted.program, self.number)
        for shard in shards:
            merged.add(self._of(shard))
        return merged.all()

    def _of(self, shard: int) -> Learnt:
        program = self.fitted.program
        needed = program.columns_read(self.number)
        walk = self._walk()
        numbered = any(step.op.needs_row_numbers for step, _ in walk)
        sampled = {program.draw.output} if program.draw else set()
        columns = list(dict.fromkeys([*needed, *sampled]))
        rows = self.staged.read(_SPLIT, shard, columns=columns, shuffled=numbered)
        if numbered:
            rows = rows.append_column(TRAIN_ROW, row_numbers(shard, rows.num_rows))
        if program.draw is None:
            return self.engine.learn(walk, self.fitted, rows)
        met = rows.filter(pc.equal(rows.column(program.draw.output), 0))
        learnt = self.engine.learn(self._walk(drawn=False), self.fitted, met)
        return learnt | self.engine.learn(self._walk(drawn=True), self.fitted, rows)

    def _walk(self, *, drawn: bool | None = None) -> Walk:
        walk = self.fitted.program.pass_steps(self.number, None, sampled=drawn)
        kept = without_idle([step for step, _ in walk], self.fitted, train=True)
        return [(step, verb) for step, verb in walk if step in kept]

    def nothing(self) -> Learnt:
        """Return what no row at all tells, so that types are known where train is empty."""
        rows = self.staged.schema.empty_table()
        rows = rows.append_column(TRAIN_ROW, row_numbers(0, 0))
        return self.engine.learn(self._walk(), self.fitted, rows)


def fit(plan: FeaturePlan, staged: Staged, engine: Engine, executor: Executor, emit: Emit) -> FittedPlan:
    """Learn everything that a plan learns.

    Args:
        plan: The plan.
        staged: The rows of train, and the tables to join.
        engine: What computes.
        executor: Where.
        emit: Told how far it is.
    """
    fitted = FittedPlan(plan, staged.inputs, {})
    program = plan.compile(staged.inputs)
    for number in range(program.passes + 1):
        tables = Tables(engine, staged, program, fitted, number)
        state: Learnt = dict(fitted.state) | tables.gathered()
        fitted = _partly(fitted, program, state)
        learnt = _over_interactions(fitted, staged, engine, executor, emit, number)
        learnt |= tables.learn()
        state |= _finish(program, number, learnt)
        state |= _cold(program, number, learnt, state, staged)
        fitted = _partly(fitted, program, state)
    return FittedPlan(plan, staged.inputs, fitted.state)


def _partly(fitted: FittedPlan, program: Program, state: Mapping[tuple[int, str], pa.Table]) -> FittedPlan:
    """Return the plan with some of its state: its program cannot be worked out anew before all is known."""
    partly = replace(fitted, state=state)
    partly.__dict__["program"] = program
    return partly


def _over_interactions(
    fitted: FittedPlan, staged: Staged, engine: Engine, executor: Executor, emit: Emit, number: int
) -> Learnt:
    if not fitted.program.fits(number, None):
        return {}
    learn = Learn(engine, fitted, staged, number)
    groups = _groups(len(staged.shards[_SPLIT]))
    merged = _Merged(fitted.program, number)
    total = staged.rows[_SPLIT]
    for done, learnt in enumerate(executor.map(learn, groups) if groups else iter([learn.nothing()]), 1):
        merged.add(learnt)
        emit(Progress(f"learn, pass {number + 1}", total * done // max(1, len(groups)), total))
    return merged.all(threads=None)


def _groups(shards: int) -> list[range]:
    """Return the shards in groups that are merged on their own, more of them in a group the more there are.

    Where parts run does not matter to it: sums of floats depend on what is added to what first.
    """
    size = max(1, math.isqrt(shards) // 2)
    return [range(start, min(start + size, shards)) for start in range(0, shards, size)]


class _Merged:
    """What parts of train tell in a pass, merged in the order in which it comes, and early, so that little is held."""

    def __init__(self, program: Program, number: int) -> None:
        steps = program.fits(number, None)
        self._ops = {step.index: cast("Op", step.op) for step in steps}
        self._parts: dict[tuple[int, str], list[pa.Table]] = defaultdict(list)

    def add(self, learnt: Learnt) -> None:
        """Take in what the next part tells."""
        for key, table in learnt.items():
            parts = self._parts[key]
            parts.append(table)
            if sum(part.num_rows for part in parts[1:]) > max(_MERGE_ROWS, 2 * parts[0].num_rows):
                self._parts[key] = [self._merge(key)]

    def all(self, *, threads: int | None = 1) -> Learnt:
        """Return it all; several threads can merge, where no other work waits for them."""
        return dict(zip(self._parts, Threads(threads).map(self._merge, self._parts), strict=True))

    def _merge(self, key: tuple[int, str]) -> pa.Table:
        return aggregators.of(self._ops[key[0]]).merge(self._parts[key])


def _finish(program: Program, number: int, learnt: Learnt) -> Learnt:
    state: Learnt = {}
    for step in program.steps:
        if step.fitted and step.after == number:
            op = cast("Op", step.op)
            merged = {name: table for (index, name), table in learnt.items() if index == step.index}
            mine = {name: merged[name] for name in op.learns}
            found = aggregators.of(op).finalize(op, mine)
            state |= {(step.index, name): table for name, table in found.items()}
    return state


def _cold(program: Program, number: int, learnt: Learnt, state: Learnt, staged: Staged) -> Learnt:
    """Return the cold keys of joined tables whose vocabulary was learnt in a pass."""
    found: Learnt = {}
    for key in program.keys:
        index, op, after = _encoder(program, key)
        if after != number:
            continue
        cold = find_cold(op, key, [join for _, join in program.joins if join.on == key], staged.tables, state, index)
        if cold.num_rows and state[index, key + REST].column("unseen")[0].as_py():
            cold = counted(cold, learnt[index, key])
        found[COLD, key] = cold
    return found


def _encoder(program: Program, key: str) -> tuple[int, Categorify, int]:
    """Return the op that makes ids of a key, its position in the plan, and the pass in which it learns."""
    return next((s.index, cast("Categorify", s.op), s.after) for s in program.steps if key in s.op.encodes)


@dataclass
class Tables:
    """The tables by id, as far as they are known in a pass: rows of cold keys stand behind those of ids.

    Attributes:
        engine: What computes.
        staged: The raw tables.
        program: The plan worked out.
        fitted: What is learnt so far.
        number: How many passes are done.
    """

    engine: Engine
    staged: Staged
    program: Program
    fitted: FittedPlan
    number: int

    def learn(self) -> Learnt:
        """Return what the tables tell in this pass, each row weighed by the interactions that it stands for."""
        learnt: Learnt = {}
        for key in self.program.keys:
            walk = self.program.pass_steps(self.number, key)
            if walk:
                raw = self.raw(key)
                weights = self._weights(key, raw.num_rows)
                stands = np.flatnonzero(weights)  # values of the others do not occur in train
                raw = raw.take(pa.array(stands)).append_column(ROW_WEIGHT, pa.array(weights[stands]))
                found = self.engine.learn(walk, self.fitted, raw)
                ops = self.fitted.plan.ops
                learnt |= {at: aggregators.of(ops[at[0]]).merge([table]) for at, table in found.items()}
        return learnt

    def gathered(self) -> Learnt:
        """Return the columns by id that the interactions will need from now on."""
        state: Learnt = {}
        for step in self.program.steps:
            if isinstance(step.op, Gather) and step.after == self.number:
                table = self._at(step)
                for name, column in zip(step.op.states, step.op.columns, strict=True):
                    state[GATHERED, name] = pa.table({column: table.column(column)})
        return state

    def _at(self, gather: PlanStep) -> pa.Table:
        """Return some columns of a table as they are at one point of the plan: before the steps that come later."""
        assert isinstance(gather.op, Gather)
        steps: list[PlanStep] = []
        needed = set(gather.op.columns)
        for step in reversed(self.program.steps[: self.program.steps.index(gather)]):
            # Others may wait for a pass that is not done.
            if step.home == gather.op.table and step.acts and needed & set(step.writes):
                steps.append(step)
                needed |= set(step.op.reads_to_apply)
        return self.engine.apply(steps[::-1], self.fitted, self.raw(gather.op.table))

    def final(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield each key and its table as it is in the end."""
        for key in self.program.keys:
            yield key, self.engine.apply(self.program.transforms(key), self.fitted, self.raw(key))

    def raw(self, key: str) -> pa.Table:
        """Return the joined columns by id, and behind them those of cold keys, as the joins bring them."""
        index, encoder, _ = _encoder(self.program, key)
        table = self._joined(key, self.fitted.state[index, encoder.vocabulary_of(key)])
        buckets = table.take(pa.array(np.zeros(encoder.buckets, dtype=np.int64)))  # as unknown as the first row
        cold = self.fitted.cold_keys(key)
        behind = [] if cold is None else [self._joined(key, cold).slice(FIRST)]
        return pa.concat_tables([table, buckets, *behind])

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
        # All that are unseen count here, those of the buckets too, but for cold keys: what is joined to them is the same.
        weights[NULL], weights[UNSEEN] = rest.column("null")[0].as_py(), rest.column("unseen")[0].as_py()
        weights[FIRST : FIRST + len(counts)] = counts.to_numpy()
        if (cold := self.fitted.cold_keys(key)) is not None:
            weights[cold.column("row").to_numpy()] = cold.column("count").to_numpy()
            weights[UNSEEN] -= pc.sum(cold.column("count")).as_py()
        return weights


def row_numbers(shard: int, rows: int, order: npt.NDArray[np.int64] | None = None) -> pa.Array:
    """Return a number for each row of a shard of train, by its position in the final order, that no other row has.

    Args:
        shard: Which shard.
        rows: How many rows it has.
        order: Where each row of the final order stands among the rows, where they are not in that order.
    """
    positions = np.arange(rows, dtype=np.uint64)
    if order is not None:
        positions[order] = np.arange(rows, dtype=np.uint64)
    return pa.array(positions + (np.uint64(shard) << np.uint64(32)))
