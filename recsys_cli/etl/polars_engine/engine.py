"""The engine on Polars: the steps for some rows become one lazy query, and what it learns from them another few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import polars as pl
import pyarrow as pa

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.engine import WEIGHT, Learnt, Walk
from recsys_cli.etl.polars_engine import join_external
from recsys_cli.features.ops import JoinExternal
from recsys_cli.features.ops.op import file_name
from recsys_cli.features.plan import FittedPlan
from recsys_cli.features.program import Step


class Computing(Protocol):
    """What a file of this engine provides for an op; `learn` only where the op learns."""

    def apply(self, op: Any, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
        """Add or change the op's columns; rows keep their number and their order."""

    def learn(self, op: Any, frame: pl.LazyFrame, weight: pl.Expr) -> Mapping[str, pl.LazyFrame]:
        """Return the queries for what some rows tell, each of which stands for `weight` interactions."""


class PolarsEngine:
    """Polars on the CPU."""

    threads: int | None = None

    def __init__(self, scratch: Path, *, device: str = "cpu") -> None:
        self.scratch = scratch
        self.device = device

    @classmethod
    def missing(cls) -> MissingExtraError | None:
        """Return None: Polars comes with the core install."""
        return None

    @classmethod
    def rank(cls) -> int:
        """Return its place beside the others: first without a GPU."""
        return 10

    def learn(self, walk: Walk, fitted: FittedPlan, rows: pa.Table) -> Learnt:
        """Go over some rows of train, applying and learning as `walk` says."""
        frame = pl.LazyFrame(rows)
        weight = pl.col(WEIGHT) if WEIGHT in rows.column_names else pl.lit(1, pl.Int64)
        queries: dict[tuple[int, str], pl.LazyFrame] = {}
        for step, verb in walk:
            if verb == "apply":
                frame = _computing(step).apply(step.op, _state(step, fitted), frame)
            else:
                found = _computing(step).learn(step.op, frame, weight)
                queries |= {(step.index, name): query for name, query in found.items()}
        # The streaming engine adds up floats in another order each time.
        tables = pl.collect_all(list(queries.values()), engine="in-memory")
        return {at: table.to_arrow() for at, table in zip(queries, tables, strict=True)}

    def apply(self, steps: Sequence[Step], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """Send rows through steps, one after the other."""
        frame = pl.LazyFrame(rows)
        for step in steps:
            frame = _computing(step).apply(step.op, _state(step, fitted), frame)
        return frame.collect().to_arrow() if steps else rows

    def join(self, op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
        """Return a table's joined columns by encoded key."""
        return join_external.by_id(op, table, keys)


def _computing(step: Step) -> Computing:
    """Return the file of this package that is named like the op."""
    return cast("Computing", import_module(f"{__package__}.{file_name(type(step.op))}"))


def _state(step: Step, fitted: FittedPlan) -> dict[str, pa.Table]:
    return {name: fitted.state[step.index, name] for name in step.op.states}
