"""The Polars engine: a lazy query applies the steps to a shard, others compute its partial aggregates; on a GPU by cudf-polars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import DataError, MissingExtraError
from recsys_cli.etl.engine import OWN, Aggregates, Engine, PassSteps, state_of
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.features.columns import CODE, POSITION, ROW_WEIGHT, TRAIN_ROW, VALUE
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.features.spec import is_list, is_text
from recsys_cli.ops import Categorify
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.grouping import canonical_key
from recsys_cli.ops.op import Op, Tables
from recsys_cli.ops.program import COLD, Gather, Locate, PlanStep
from recsys_cli.ops.vocabulary import count, encode_arrow, encode_column
from recsys_cli.registry import is_own

Apply = Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True)
class Unit:
    """A part of a query for the GPU or the CPU, with its name in messages."""

    name: str
    apply: Apply


@dataclass
class Gpu:
    """Runs queries on the GPU, with the CPU as fallback and a warning for each part on the CPU."""

    emit: Emit = ignore
    _refused: set[str] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the listener: it is local to the process."""
        return {"emit": ignore, "_refused": self._refused}

    def collect(self, query: pl.LazyFrame, *, name: str) -> pl.DataFrame:
        """Run a query, on the CPU after a GPU failure under the same name."""
        result = None if name in self._refused else self._attempt([Unit(name, lambda frame: frame)], query)
        return query.collect(engine="in-memory") if result is None else result

    def apply(self, units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
        """Apply parts of a query to rows; number and order of rows stay."""
        frame = frame.with_columns(pl.Series(POSITION, np.arange(frame.height, dtype=np.int64)))
        run: list[Unit] = []
        for unit in units:
            if unit.name in self._refused:
                frame = _on_cpu([unit], self._run(run, frame))
                run = []
            else:
                run.append(unit)
        return self._run(run, frame).drop(POSITION)

    def _run(self, units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
        """Run parts as one query; on failure, bisect to find the unsupported ones."""
        if not units:
            return frame
        query = frame.lazy()
        for unit in units:
            query = unit.apply(query)
        result = self._attempt(units, query)
        if result is not None and result.height == frame.height:
            return result if result.get_column(POSITION).is_sorted() else result.sort(POSITION)
        if len(units) == 1:
            return _on_cpu(units, frame)
        half = len(units) // 2
        return self._run(units[half:], self._run(units[:half], frame))

    def _attempt(self, units: Sequence[Unit], query: pl.LazyFrame) -> pl.DataFrame | None:
        # The streaming executor of cudf-polars loses or doubles groups (cudf#22932); a shard fits into memory.
        engine = pl.GPUEngine(executor="in-memory", raise_on_fail=True)
        try:
            return query.collect(engine=engine)
        except Exception as error:  # any error: the CPU retries, and an error in the data recurs there
            if len(units) == 1:
                self._refused.add(units[0].name)
                self.emit(Message(f"{units[0].name} runs on the CPU: {_reason(error)}", "warning"))
            return None


def _on_cpu(units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
    query = frame.lazy()
    for unit in units:
        query = unit.apply(query)
    return query.collect()


def _reason(error: Exception) -> str:
    """Return the unsupported features of an error message, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # cudf-polars lists unsupported features, one per line.
    listed = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return "; ".join(listed) or f"{type(error).__name__}: {lines[0] if lines else ''}"


def learn_categorify(op: Categorify, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Count like `Categorify.learn`."""
    queries = {}
    for column in op.learns:
        values = frame.select(canonical_key(column, frame).alias("value"), weight.cast(pl.Int64).alias("count"))
        if isinstance(values.collect_schema()["value"], pl.List):
            values = values.filter(pl.col("value").list.len() > 0).explode("value")
        queries[column] = values.group_by("value", maintain_order=True).agg(pl.col("count").sum())
    return queries


def units_of_categorify(op: Categorify, state: Tables, types: pl.Schema) -> Iterator[Unit]:
    """Yield a unit for the GPU, and one for the CPU: lists, and columns with hash buckets."""
    simple = [name for name in op.learns if not isinstance(types[name], pl.List) and not op.num_buckets]
    others = [name for name in op.learns if name not in simple]
    if simple:
        yield Unit("Categorify", partial(_joined, {name: state[op.vocabulary_of(name)] for name in simple}))
    if others:
        encode = {name: op.encoding(name, state) for name in others}
        yield Unit(
            "Categorify of lists or with buckets",
            lambda frame: frame.with_columns(encode_column(name, frame, to_ids) for name, to_ids in encode.items()),
        )


def _joined(vocabularies: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    order = frame.collect_schema().names()
    for name, vocabulary in vocabularies.items():
        ids = np.arange(FIRST, FIRST + vocabulary.num_rows, dtype=np.int32)
        value = canonical_key(name, frame)
        table = pl.LazyFrame({VALUE: pl.Series(pl.from_arrow(vocabulary.column("value"))), CODE: ids})
        kind = frame.select(value).collect_schema()[name]
        rows = frame.with_columns(value.alias(VALUE)).drop(name)
        joined = rows.join(table.cast({VALUE: kind}), on=VALUE, how="left", maintain_order="left", nulls_equal=False)
        encoded = pl.when(pl.col(VALUE).is_null()).then(NULL).otherwise(pl.col(CODE).fill_null(UNSEEN)).cast(pl.Int32)
        frame = joined.with_columns(encoded.alias(name)).drop(VALUE, CODE)
    return frame.select(order)


class PolarsEngine(Engine):
    """Polars on the CPU, or on a GPU by cudf-polars, with the CPU for ops without GPU support."""

    def __init__(self, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> None:
        self.scratch = scratch
        self.device = device
        self.threads: int | None = 1 if device == "gpu" else None
        self._gpu = Gpu(emit) if device == "gpu" else None

    @classmethod
    def missing(cls, device: str = "cpu") -> MissingExtraError | None:
        """See `Engine.missing`."""
        return OWN["polars"].missing(device)

    def refuses(self, op: Op) -> str | None:
        """See `Engine.refuses`."""
        return op.refusal("polars")

    def learn(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Aggregates:
        """See `Engine.learn`."""
        direct = self._direct(walk, fitted, rows)
        frame = pl.LazyFrame(direct.query_input)
        weight = pl.col(ROW_WEIGHT) if ROW_WEIGHT in rows.column_names else pl.lit(1, pl.Int64)
        queries: dict[tuple[PlanStep, str], pl.LazyFrame] = {}
        totals: dict[tuple[PlanStep, str], int] = {}
        for verb, part in groupby(direct.rest, key=itemgetter(1)):
            steps = [step for step, _ in part]
            if verb == "apply":
                frame = self._applied(steps, fitted, frame)
                continue
            for step in steps:
                queries |= {(step, name): query for name, query in self._learning(step, frame, weight).items()}
                if columns := step.op.encodes:
                    totals |= {(step, name): total for name, total in totals_of(columns, frame, rows).items()}
        tables = self._collected(queries)
        for at, total in totals.items():
            check_counts(at[1], tables[at], total)
        return direct.learnt | {(step.index, name): table for (step, name), table in tables.items()}

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """See `Engine.apply`."""
        direct = self._direct([(step, "apply") for step in steps], fitted, rows)
        if not direct.rest:
            return direct.rows
        frame = pl.LazyFrame(direct.rows)
        return self._applied([step for step, _ in direct.rest], fitted, frame).collect().to_arrow()

    def _direct(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> ArrowSteps:
        """Run the steps that need no query; on a GPU every step is a query."""
        return ArrowSteps.of(walk, fitted, rows) if self._gpu is None else ArrowSteps(rows, rest=list(walk))

    def _applied(self, steps: Sequence[PlanStep], fitted: FittedPlan, frame: pl.LazyFrame) -> pl.LazyFrame:
        if self._gpu is not None:
            return self._applied_on_gpu(self._gpu, steps, fitted, frame)
        for step in steps:
            frame = step.op.polars(state_of(step, fitted), frame)
        return frame

    @staticmethod
    def _applied_on_gpu(gpu: Gpu, steps: Sequence[PlanStep], fitted: FittedPlan, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Apply steps on the GPU, except for ops on NumPy and ops of other packages."""
        on_cpu = groupby(steps, key=lambda step: step.op.runs_on_numpy or not is_own(type(step.op).__module__))
        for is_on_cpu, part in on_cpu:
            if is_on_cpu:
                for step in part:
                    frame = step.op.polars(state_of(step, fitted), frame)
            else:
                frame = gpu.apply(list(_units(list(part), fitted, frame)), frame.collect()).lazy()
        return frame

    def _learning(self, step: PlanStep, frame: pl.LazyFrame, weight: pl.Expr) -> Mapping[str, pl.LazyFrame]:
        if self._gpu is not None and isinstance(step.op, Categorify):
            return learn_categorify(step.op, frame, weight)
        return step.op.learn(frame, weight)

    def _collected(self, queries: Mapping[tuple[PlanStep, str], pl.LazyFrame]) -> dict[tuple[PlanStep, str], pa.Table]:
        if self._gpu is not None:
            tables = [
                self._gpu.collect(q, name=f"fitting {type(step.op).__name__}") for (step, _), q in queries.items()
            ]
        else:
            # The streaming engine sums floats in a different order on each run.
            tables = pl.collect_all(list(queries.values()), engine="in-memory")
        return {at: table.to_arrow() for at, table in zip(queries, tables, strict=True)}


def _units(steps: Sequence[PlanStep], fitted: FittedPlan, frame: pl.LazyFrame) -> Iterator[Unit]:
    for step in steps:
        state = state_of(step, fitted)
        if isinstance(step.op, Categorify):
            yield from units_of_categorify(step.op, state, frame.collect_schema())
        else:
            yield Unit(type(step.op).__name__, partial(step.op.polars, state))
        frame = step.op.polars(state, frame)


@dataclass
class ArrowSteps:
    """Steps of Categorify on raw columns, counted and encoded in Arrow memory, and the remaining steps.

    A Polars query would copy their strings twice, at more cost than counting and encoding.

    Attributes:
        rows: The rows, with the encoded columns as ids.
        rest: Steps that need a query over the rows, in order.
    """

    rows: pa.Table
    learnt: Aggregates = field(default_factory=dict)
    rest: list[tuple[PlanStep, Literal["fit", "apply"]]] = field(default_factory=list)

    @classmethod
    def of(cls, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> ArrowSteps:
        """Run each Categorify and Locate without a dependency on a remaining step."""
        done = cls(rows)
        read: set[str] = set()
        written: set[str] = set()
        for step, verb in walk:
            is_raw = not written & set(step.op.reads) and done._supports(step.op)
            if is_raw and isinstance(step.op, Locate):
                done._locate(step.op, fitted)
            elif is_raw and verb == "fit" and ROW_WEIGHT not in rows.column_names:
                done._count(step)
            elif is_raw and verb == "apply" and not read & set(step.op.reads):
                done._encode(step, fitted)
            else:
                done.rest.append((step, verb))
                read |= set(step.op.reads)
                written |= set(step.writes) if verb == "apply" else set()
        return done

    @property
    def query_input(self) -> pa.Table:
        """The input columns of the remaining steps."""
        read = {ROW_WEIGHT, TRAIN_ROW}.union(*(step.op.reads for step, _ in self.rest))
        names = [name for name in self.rows.column_names if name in read]
        # A table without columns has no rows.
        return self.rows.select(names or self.rows.column_names[:1])

    def _supports(self, op: Op | Gather | Locate) -> bool:
        supported = bool(op.encodes) or isinstance(op, Locate)
        return supported and all(_is_plain(self.rows.schema.field(name).type) for name in op.reads)

    def _count(self, step: PlanStep) -> None:
        for name in dict.fromkeys(step.op.encodes):
            values = self._values(name)
            values = values.flatten() if is_list(values.type) else values
            counts = count(values)
            check_counts(name, counts, len(values))
            self.learnt[step.index, name] = counts

    def _encode(self, step: PlanStep, fitted: FittedPlan) -> None:
        op = cast("Categorify", step.op)
        state = {name: fitted.state[step.index, name] for name in op.vocabularies}
        for name in op.learns:
            ids = encode_arrow(self._values(name), op.encoding(name, state))
            self.rows = self.rows.set_column(self.rows.schema.get_field_index(name), name, ids)

    def _locate(self, op: Locate, fitted: FittedPlan) -> None:
        rows = op.located(self._values(op.key), {op.key: fitted.state[COLD, op.key]})
        self.rows = self.rows.append_column(op.output, pa.array(rows))

    def _values(self, name: str) -> pa.Array:
        column = self.rows.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a Polars query would leave values of this type unchanged."""
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type) and not pa.types.is_list(kind.value_type)
    return is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)


def totals_of(columns: Sequence[str], frame: pl.LazyFrame, rows: pa.Table) -> dict[str, int]:
    """Return the number of values of each column, nulls included, without a group-by; lists by element.

    `rows` is the source of the frame, with ROW_WEIGHT for dimension tables.
    """
    number = rows.num_rows if ROW_WEIGHT not in rows.column_names else int(pc.sum(rows.column(ROW_WEIGHT)).as_py() or 0)
    types = frame.select(columns).collect_schema()
    numbers = dict.fromkeys(columns, number)
    weight = pl.col(ROW_WEIGHT) if ROW_WEIGHT in rows.column_names else pl.lit(1, pl.Int64)
    for name in numbers:
        if isinstance(types[name], pl.List):
            elements = (pl.col(name).list.len().cast(pl.Int64) * weight).sum()
            numbers[name] = int(frame.select(elements).collect().item())
    return numbers


def check_counts(column: str, counts: pa.Table, total: int) -> None:
    """Refuse counts of a column that do not add up to its number of values: some cuDF releases lose groups (cudf#22932)."""
    counted = pc.sum(counts.column("count")).as_py() or 0
    if counted != total:
        raise DataError(f"counting {column} gave {counted} values instead of {total}", hint="use etl.device=cpu")
