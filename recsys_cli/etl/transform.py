"""Prepared rows as parquet files, and counts of their missing values."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.etl.engine import Engine, Executor
from recsys_cli.etl.filters import count_lost, missing_times, with_exact_labels, without_time
from recsys_cli.etl.fit import row_numbers, with_rows, without_idle
from recsys_cli.etl.staging import Staged
from recsys_cli.events import Emit, Progress
from recsys_cli.features.columns import IMPRESSION_HASH, ROW_NUMBER, TRAIN_ROW, USER_HASH
from recsys_cli.features.hashing import hash_counters, hash_values
from recsys_cli.features.order import tie_keys
from recsys_cli.features.schema import NULL, UNSEEN, Column, Kind, Role, Schema
from recsys_cli.features.split import SPLITS, TRAIN
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.program import FLAT, Gather, PlanStep
from recsys_cli.workspace import naming

ROW_GROUP_ROWS = 1 << 18
"""Rows per row group, the unit of reads of a streaming loader."""

_PARTIAL = ".partial"


def count_missing(table: pa.Table, schema: Schema) -> dict[str, Counter[str]]:
    """Count null, unseen and infinite values (elements of lists) of each column of the interactions."""
    return {column.name: _count(table.column(column.name), column) for column in schema.in_table(None)}


def write_table(table: pa.Table, path: Path) -> None:
    """Write a parquet file atomically: a worker may die, or two workers may write the same file.

    Uncompressed: shuffled ids and times hardly compress, and the attempt would double the time of the transform.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{_PARTIAL}")
    with naming(path):
        pq.write_table(table, partial, compression="none", use_dictionary=False, row_group_size=ROW_GROUP_ROWS)
        partial.replace(path)


def sweep(folder: Path) -> None:
    """Remove partial files of dead workers from a folder."""
    for partial in folder.glob(f".*{_PARTIAL}"):
        partial.unlink(missing_ok=True)


def typed_table(table: pa.Table, columns: tuple[Column, ...]) -> pa.Table:
    """Return the columns of the schema from a table, in their order and types."""
    return pa.table({column.name: _typed(table.column(column.name), column) for column in columns})


def _typed(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    if column.unit is not None:
        time = pa.timestamp(column.unit)
        values = values.cast(pa.list_(time) if column.ragged else time)
    kind = pa.type_for_alias(column.dtype)
    values = values.cast(pa.list_(kind) if column.ragged else kind, safe=False)
    missing = float("nan") if column.dtype.startswith("float") else 0
    if column.ragged:
        return pa.chunked_array([_without_nulls(chunk, missing) for chunk in values.chunks], values.type)
    return pc.fill_null(values, missing) if column.dtype.startswith("float") else values


def _without_nulls(lists: pa.ListArray, missing: float) -> pa.ListArray:
    """Replace null lists by empty ones, and null elements by `missing`."""
    elements = lists.flatten()
    if lists.null_count == elements.null_count == 0:
        return lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements.fill_null(pa.scalar(missing, elements.type)))


def _count_numbers(values: pa.ChunkedArray) -> Counter[str]:
    """Count null (or NaN) and infinite numbers."""
    null = pc.sum(pc.is_null(values, nan_is_null=True)).as_py() or 0
    infinite = (pc.sum(pc.is_inf(values)).as_py() or 0) if pa.types.is_floating(values.type) else 0
    return Counter({"null": null, "infinite": infinite, "values": len(values)})


def _count(values: pa.ChunkedArray, column: Column) -> Counter[str]:
    if column.ragged:
        values = pc.list_flatten(values)
    if column.kind is Kind.NUMERIC:
        return _count_numbers(values)
    ids = [chunk.to_numpy(zero_copy_only=False) for chunk in values.chunks]
    nulls, unseen = (sum(int(np.count_nonzero(some == code)) for some in ids) for code in (NULL, UNSEEN))
    if column.buckets and column.cardinality is not None:
        first = column.cardinality - column.buckets
        unseen += sum(int(np.count_nonzero(some >= first)) for some in ids)
    return Counter({"null": nulls, "unseen": unseen, "values": len(values)})


@dataclass(frozen=True)
class Written:
    """Counts of written rows.

    Attributes:
        missing: Counts of `null`, `unseen` and all `values`, by column.
        lost: Counts of `null`, `unfit` (overflow) and all `rows`, by label with a cast to an integer type.
    """

    rows: int = 0
    missing: Mapping[str, Counter[str]] = field(default_factory=dict)
    lost: Mapping[str, Counter[str]] = field(default_factory=dict)

    def __add__(self, other: Written) -> Written:
        missing, lost = _added(self.missing, other.missing), _added(self.lost, other.lost)
        return Written(self.rows + other.rows, missing, lost)


def _added(left: Mapping[str, Counter[str]], right: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    total = {name: Counter(counts) for name, counts in left.items()}
    for name, counts in right.items():
        total.setdefault(name, Counter()).update(counts)
    return total


@dataclass(frozen=True)
class Transform:
    """The transform of one shard of a split: a task of an executor.

    Attributes:
        fitted: The fitted plan; for the flat layout with the tables by id (`flattened`).
        user: The raw user column, to write a hash for each user without an id; None to write no hashes.
        impression: The raw column of impression ids, to write their hashes; None to write none.
    """

    engine: Engine
    fitted: FittedPlan
    staged: Staged
    schema: Schema
    split: str
    folder: Path
    user: str | None = None
    impression: str | None = None

    def __call__(self, shard: int) -> Written:
        """Write a shard and return its counts."""
        in_train = self.split == SPLITS[TRAIN]
        widens = any(column.ragged for column in self.schema.in_table(None))
        rows = self.staged.read(self.split, shard, shuffled=widens)
        if not rows.num_rows:
            return Written()
        order = self.staged.order(shard, rows.num_rows) if in_train and not widens else None
        if in_train:
            rows = rows.append_column(TRAIN_ROW, row_numbers(shard, rows.num_rows, order))
        rows, numbers = _without_numbers(rows, self.staged.tie_seed)
        steps = without_idle(_steps(self.fitted), self.fitted, train=in_train)
        computed = self.engine.apply(with_exact_labels(steps, self.fitted, rows), self.fitted, rows)
        lost = count_lost(computed, self.schema)
        table = with_rows(typed_table(computed, self.schema.in_table(None)), computed, steps)
        self._check_times(table)
        if self.user is not None:
            table = table.append_column(USER_HASH, self._user_hashes(table, rows.select([self.user])))
        if self.impression is not None:
            table = table.append_column(IMPRESSION_HASH, self._impressions(rows))
        if order is not None:
            table = table.take(pa.array(order))  # cheaper than before the steps: encoded ids, no strings
        if numbers is not None:
            table = table.append_column(ROW_NUMBER, numbers if order is None else _taken(numbers, order))
        write_table(table, self.folder / f"{shard:05d}.parquet")
        missing = count_missing(table, self.schema)
        for label, counts in lost.items():
            missing[label]["null"] += counts["null"]  # lost in the cast to integers
        return Written(table.num_rows, missing, lost)

    def _check_times(self, table: pa.Table) -> None:
        """Refuse interactions without a time after the ops; sampled negatives have none."""
        for column in self.schema.in_table(None):
            if column.role is Role.TIMESTAMP and not column.ragged:
                missing = without_time(table.column(column.name))
                if missing is None:
                    continue
                for sampled in self.schema.select(lambda one: one.role is Role.SAMPLED):
                    missing &= table.column(sampled.name).to_numpy() == 0
                if missing.any():
                    where = f"in the prepared rows of {self.split}"
                    raise missing_times(column.name, int(missing.sum()), len(missing), where)

    def _user_hashes(self, table: pa.Table, raw: pa.Table) -> pa.Array:
        """Return the hash of each row's raw user, uint64; null for users with an id of their own."""
        column = self.schema.only(Role.USER)
        ids = table.column(column.name).to_numpy()
        unknown = (ids == UNSEEN) | (ids >= column.own_ids.stop)
        hashes = np.zeros(len(ids), dtype=np.uint64)
        if unknown.any():
            hashes[unknown] = hash_values(raw.filter(pa.array(unknown)).column(0).combine_chunks())
        return pa.array(hashes, mask=~unknown)

    def _impressions(self, rows: pa.Table) -> pa.Array:
        """Return the hash of each row's impression and user, uint64; null without an impression.

        Ids may start again in another file: with the user they stay distinct.
        """
        values = rows.column(self.impression)
        hashes = hash_values(values.combine_chunks())
        if self.user is not None:
            hashes = hash_counters(hashes, hash_values(rows.column(self.user).combine_chunks()))
        return pa.array(hashes, mask=pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False))


def _taken(numbers: pa.ChunkedArray, order: npt.NDArray[np.int64]) -> pa.Array:
    """Return reordered row numbers; NumPy is faster than Arrow for columns without nulls."""
    if numbers.null_count:
        return numbers.take(pa.array(order)).combine_chunks()
    return pa.array(numbers.to_numpy()[order])


def _without_numbers(rows: pa.Table, seed: int | None) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """Return the other columns, and the row numbers, or with the seed their keys."""
    if ROW_NUMBER not in rows.column_names:
        return rows, None
    numbers = rows.column(ROW_NUMBER)
    if seed is not None:  # null for sampled negatives
        keys = tie_keys(numbers.fill_null(0).to_numpy().astype(np.int64), seed)
        numbers = pa.chunked_array([pa.array(keys, mask=numbers.is_null().to_numpy())])
    return rows.drop_columns([ROW_NUMBER]), numbers


def transform(task: Transform, executor: Executor, emit: Emit, *, done: int, total: int) -> Written:
    """Transform all shards of a split, after `done` of `total` rows of all splits."""
    written = Written()
    for part in executor.map(task, range(len(task.staged.shards[task.split]))):
        written += part
        emit(Progress("transform", done + written.rows, total))
    sweep(task.folder)
    return written


def prepare(engine: Engine, fitted: FittedPlan, rows: pa.Table, schema: Schema) -> pa.Table:
    """Apply a fitted plan to new raw rows, in the columns and types of a schema."""
    steps = without_idle(_steps(fitted), fitted, train=False)
    return typed_table(engine.apply(steps, fitted, rows), schema.in_table(None))


def _steps(fitted: FittedPlan) -> list[PlanStep]:
    """Return the steps of the interactions, with the lookup joins of the flat layout."""
    flat = _flat_steps(fitted) if any(position == FLAT for position, _ in fitted.state) else []
    return [*fitted.program.transforms(None), *flat]


def flattened(fitted: FittedPlan, tables: Mapping[str, pa.Table]) -> FittedPlan:
    """Return the plan with the tables by id, for the lookup joins of the flat layout."""
    state = dict(fitted.state)
    for step in _flat_steps(fitted):
        assert isinstance(step.op, Gather)
        for name, column in zip(step.op.states, step.op.columns, strict=True):
            state[FLAT, name] = pa.table({column: tables[step.op.table].column(column)})
    return replace(fitted, state=state)


def _flat_steps(fitted: FittedPlan) -> list[PlanStep]:
    steps = []
    for key in fitted.program.keys:
        columns = tuple(
            name for name, _, home in fitted.program.columns if home == key and name not in fitted.plan.drop
        )
        if columns:
            steps.append(PlanStep(FLAT, Gather(key, columns), None, 0, columns))
    return steps
