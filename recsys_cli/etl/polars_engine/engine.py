"""The engine on Polars: the steps for some rows become one lazy query, and what it learns from them another few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, cast

import polars as pl
import pyarrow as pa

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.engine import Aggregates, PassSteps
from recsys_cli.etl.engines import OWN
from recsys_cli.etl.implementations import load, refusal
from recsys_cli.etl.polars_engine import counted, gpu, join_external, joined_categorify
from recsys_cli.etl.polars_engine.direct import Direct
from recsys_cli.etl.polars_engine.gpu import Gpu
from recsys_cli.etl.polars_engine.ops import MODULES
from recsys_cli.events import Emit, ignore
from recsys_cli.features.columns import ROW_WEIGHT
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.ops import Categorify, JoinExternal
from recsys_cli.features.ops.op import Op
from recsys_cli.features.program import PlanStep


class Computing(Protocol):
    """What a module of this engine provides for an op; `learn` only where the op learns."""

    def apply(self, op: Any, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
        """Add or change the op's columns; rows keep their number and their order."""

    def learn(self, op: Any, frame: pl.LazyFrame, weight: pl.Expr) -> Mapping[str, pl.LazyFrame]:
        """Return the queries for what some rows tell, each of which stands for `weight` interactions."""


class PolarsEngine:
    """Polars, on the CPU or, through cudf-polars, on a GPU.

    Where the GPU cannot run an op, its part runs on the CPU, and the listener is told.
    """

    def __init__(self, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> None:
        self.scratch = scratch
        self.device = device
        self.threads: int | None = 1 if device == "gpu" else None
        self._gpu = Gpu(emit) if device == "gpu" else None

    @classmethod
    def missing(cls, device: str = "cpu") -> MissingExtraError | None:
        """Return the package that is missing or of the wrong release, or None."""
        return OWN["polars"].missing(device)

    def refuses(self, op: Op) -> str | None:
        """Return why it cannot compute an op; None where it can."""
        return refusal(op, "polars", MODULES)

    def learn(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Aggregates:
        """Go over some rows of train, applying and learning as `walk` says.

        Raises:
            DataError: A Categorify lost or doubled values in counting.
        """
        direct = self._direct(walk, fitted, rows)
        frame = pl.LazyFrame(direct.looked_at)
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
                    totals |= {(step, name): total for name, total in counted.totals(columns, frame, rows).items()}
        tables = self._collected(queries)
        for at, total in totals.items():
            counted.check(at[1], tables[at], total)
        return direct.learnt | {(step.index, name): table for (step, name), table in tables.items()}

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """Send rows through steps, one after the other."""
        direct = self._direct([(step, "apply") for step in steps], fitted, rows)
        if not direct.rest:
            return direct.rows
        frame = pl.LazyFrame(direct.rows)
        return self._applied([step for step, _ in direct.rest], fitted, frame).collect().to_arrow()

    def _direct(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Direct:
        """Do what needs no query; on a GPU everything is one."""
        return Direct.of(walk, fitted, rows) if self._gpu is None else Direct(rows, rest=list(walk))

    def _applied(self, steps: Sequence[PlanStep], fitted: FittedPlan, frame: pl.LazyFrame) -> pl.LazyFrame:
        if self._gpu is not None:
            return self._gpu.apply(list(_units(steps, fitted, frame)), frame.collect()).lazy()
        for step in steps:
            frame = _computing(step).apply(step.op, _state(step, fitted), frame)
        return frame

    def _learning(self, step: PlanStep, frame: pl.LazyFrame, weight: pl.Expr) -> Mapping[str, pl.LazyFrame]:
        if self._gpu is not None and step.op.encodes:
            return joined_categorify.learn(cast("Categorify", step.op), frame, weight)
        return _computing(step).learn(step.op, frame, weight)

    def _collected(self, queries: Mapping[tuple[PlanStep, str], pl.LazyFrame]) -> dict[tuple[PlanStep, str], pa.Table]:
        if self._gpu is not None:
            tables = [
                self._gpu.collect(q, name=f"learning of {type(step.op).__name__}") for (step, _), q in queries.items()
            ]
        else:
            # The streaming engine adds up floats in another order each time.
            tables = pl.collect_all(list(queries.values()), engine="in-memory")
        return {at: table.to_arrow() for at, table in zip(queries, tables, strict=True)}

    def join(self, op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
        """Return a table's joined columns by encoded key."""
        return join_external.by_id(op, table, keys)


def _computing(step: PlanStep) -> Computing:
    return cast("Computing", load(step.op, "polars", MODULES))


def _units(steps: Sequence[PlanStep], fitted: FittedPlan, frame: pl.LazyFrame) -> Iterator[gpu.Unit]:
    """Yield the parts that may or may not run on a GPU."""
    for step in steps:
        apply, state = _computing(step).apply, _state(step, fitted)
        if step.op.encodes:
            yield from joined_categorify.units(cast("Categorify", step.op), state, frame.collect_schema())
        else:
            yield gpu.Unit(type(step.op).__name__, partial(apply, step.op, state))
        frame = apply(step.op, state, frame)


def _state(step: PlanStep, fitted: FittedPlan) -> dict[str, pa.Table]:
    return {name: fitted.state[step.index, name] for name in step.op.states}
