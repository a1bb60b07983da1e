"""The engine protocol, and the choice of an engine by name.

Filters, splits and shards (`staging`) precede the engine, and the ops merge its partial aggregates: the same code
for all engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa

from recsys_cli.errors import ConfigError, MissingExtraError
from recsys_cli.etl.engines import best
from recsys_cli.events import Emit, ignore
from recsys_cli.ops import JoinExternal
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import PlanStep
from recsys_cli.plugins import guard_class, guarded, require_subclass
from recsys_cli.registry import ENGINES, is_own, load, lookup

PassSteps = Sequence[tuple[PlanStep, Literal["fit", "apply"]]]
"""Steps of one pass over a table, in order, each to fit or to apply."""
Aggregates = dict[tuple[int, str], pa.Table]
"""Partial or merged aggregates, by position of the op in the plan and name of the table."""


class Engine(Protocol):
    """Computes the ops of a plan. All engines give bitwise equal results, floats within 1e-6.

    Engines of other packages derive from this class (docs/security.md).

    Attributes:
        device: "cpu" or "gpu".
        threads: Maximum number of concurrent parts; None for the number of cores.
    """

    device: str
    threads: int | None

    def __init__(self, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> None:
        """Initialize an engine with a scratch folder; `emit` receives warnings, such as a fallback to the CPU."""

    @classmethod
    def missing(cls, device: str = "cpu") -> MissingExtraError | None:
        """Return the missing package of the engine on a device, or None; without an import."""

    def refuses(self, op: Op) -> str | None:
        """Return the reason against computing an op of phase "columns"; None for supported ops (the default)."""
        del op
        return None

    def learn(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Aggregates:
        """Compute the partial aggregates of rows of train, possibly none, with ROW_WEIGHT for rows of a table by id."""

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """Apply steps to rows, possibly none, with TRAIN_ROW for rows of train; number and order of rows stay."""

    def join(self, op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
        """Return the joined columns: row i belongs to id i of the vocabulary `keys`; rows of the special ids are null.

        Raises:
            DataError: The table has a duplicate key.
        """


def state_of(step: PlanStep, fitted: FittedPlan) -> dict[str, pa.Table]:
    """Return the fitted state of a step, by name."""
    return {name: fitted.state[step.index, name] for name in step.op.states}


def check_ops(engine: Engine, ops: Sequence[Op]) -> None:
    """Refuse ops without an implementation in the engine, all in one error."""
    problems = [
        f"features.ops.{index}: {reason}"
        for index, op in enumerate(ops)
        if op.phase == "columns" and (op.acts or op.fitted) and (reason := engine.refuses(op)) is not None
    ]
    if problems:
        raise ConfigError("\n".join(problems), hint="choose another etl.engine, or remove the op")


def choose(name: str, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> tuple[str, Engine]:
    """Return the name and the engine; `auto` selects the fastest available one.

    Raises:
        ConfigError: The name is unknown.
        MissingExtraError: A package of the engine, or of its device, is not installed.
    """
    if name == "auto":
        name = best(device)
    path = lookup(ENGINES, name, what="engine")
    engine: type[Engine] = load(path)
    if not is_own(path):
        require_subclass(engine, Engine, path)
        guard_class(engine, f"the engine {path} failed")
    if (missing := engine.missing(device)) is not None:
        raise missing
    with guarded(f"the engine {path} failed", of=SystemExit):
        return name, engine(scratch, device=device, emit=emit)
