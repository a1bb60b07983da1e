"""The Polars engine: a lazy query applies the steps to a shard, others compute its partial aggregates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.engine import Aggregates, PassSteps, state_of
from recsys_cli.etl.engines import OWN
from recsys_cli.etl.implementations import refusal
from recsys_cli.etl.polars_engine import count_check, gpu, join_external, joined_categorify
from recsys_cli.etl.polars_engine.computing import ForeignComputing, computing
from recsys_cli.etl.polars_engine.direct import Direct
from recsys_cli.etl.polars_engine.gpu import Gpu
from recsys_cli.etl.polars_engine.ops import MODULES
from recsys_cli.events import Emit, ignore
from recsys_cli.features.columns import ROW_WEIGHT
from recsys_cli.ops import Categorify, JoinExternal
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import PlanStep


class PolarsEngine:
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
        return refusal(op, "polars", MODULES)

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
                    totals |= {(step, name): total for name, total in count_check.totals(columns, frame, rows).items()}
        tables = self._collected(queries)
        for at, total in totals.items():
            count_check.check(at[1], tables[at], total)
        return direct.learnt | {(step.index, name): table for (step, name), table in tables.items()}

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """See `Engine.apply`."""
        direct = self._direct([(step, "apply") for step in steps], fitted, rows)
        if not direct.rest:
            return direct.rows
        frame = pl.LazyFrame(direct.rows)
        return self._applied([step for step, _ in direct.rest], fitted, frame).collect().to_arrow()

    def _direct(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Direct:
        """Run the steps that need no query; on a GPU every step is a query."""
        return Direct.of(walk, fitted, rows) if self._gpu is None else Direct(rows, rest=list(walk))

    def _applied(self, steps: Sequence[PlanStep], fitted: FittedPlan, frame: pl.LazyFrame) -> pl.LazyFrame:
        if self._gpu is not None:
            return self._applied_on_gpu(self._gpu, steps, fitted, frame)
        for step in steps:
            frame = computing(step.op).apply(step.op, state_of(step, fitted), frame)
        return frame

    @staticmethod
    def _applied_on_gpu(gpu: Gpu, steps: Sequence[PlanStep], fitted: FittedPlan, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Apply steps on the GPU, except for ops of other packages: their rows are checked on the CPU."""
        for is_foreign, part in groupby(steps, key=lambda step: isinstance(computing(step.op), ForeignComputing)):
            if is_foreign:
                for step in part:
                    frame = computing(step.op).apply(step.op, state_of(step, fitted), frame)
            else:
                frame = gpu.apply(list(_units(list(part), fitted, frame)), frame.collect()).lazy()
        return frame

    def _learning(self, step: PlanStep, frame: pl.LazyFrame, weight: pl.Expr) -> Mapping[str, pl.LazyFrame]:
        if self._gpu is not None and step.op.encodes:
            return joined_categorify.learn(cast("Categorify", step.op), frame, weight)
        return computing(step.op).learn(step.op, frame, weight)

    def _collected(self, queries: Mapping[tuple[PlanStep, str], pl.LazyFrame]) -> dict[tuple[PlanStep, str], pa.Table]:
        if self._gpu is not None:
            tables = [
                self._gpu.collect(q, name=f"fitting {type(step.op).__name__}") for (step, _), q in queries.items()
            ]
        else:
            # The streaming engine sums floats in a different order on each run.
            tables = pl.collect_all(list(queries.values()), engine="in-memory")
        return {at: table.to_arrow() for at, table in zip(queries, tables, strict=True)}

    def join(self, op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
        """See `Engine.join`."""
        return join_external.by_id(op, table, keys)


def _units(steps: Sequence[PlanStep], fitted: FittedPlan, frame: pl.LazyFrame) -> Iterator[gpu.Unit]:
    for step in steps:
        apply, state = computing(step.op).apply, state_of(step, fitted)
        if step.op.encodes:
            yield from joined_categorify.units(cast("Categorify", step.op), state, frame.collect_schema())
        else:
            yield gpu.Unit(type(step.op).__name__, partial(apply, step.op, state))
        frame = apply(step.op, state, frame)
