"""The engine protocol, and the choice of an engine by name.

Filters and the assignment to splits and shards (`staging`) precede the engine; `aggregators` merge its partial aggregates.
Both are the same for all engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa

from recsys_cli.errors import ConfigError, MissingExtraError
from recsys_cli.etl.engines import best
from recsys_cli.events import Emit, ignore
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.ops import JoinExternal
from recsys_cli.features.ops.op import Op
from recsys_cli.features.program import PlanStep
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
        """Initialize an engine.

        Args:
            scratch: A scratch folder.
            device: "cpu" or "gpu".
            emit: Receiver of warnings, such as a fallback to the CPU.
        """

    @classmethod
    def missing(cls, device: str = "cpu") -> MissingExtraError | None:
        """Return the missing package of the engine on a device, or None; without an import of its libraries."""

    def refuses(self, op: Op) -> str | None:
        """Return the reason why the engine does not support an op of phase "columns"; None if it does (the default)."""
        del op
        return None

    def learn(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Aggregates:
        """Compute the partial aggregates of some rows of train.

        Args:
            walk: Steps of one table to fit or apply, in order.
            fitted: The fitted state of earlier passes.
            rows: Rows of train, possibly empty; with ROW_WEIGHT for rows of a table by id.
        """

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """Apply steps to rows; the number and the order of rows stay the same.

        Args:
            steps: Steps of one table, in order.
            fitted: The fitted plan.
            rows: Rows, possibly empty; with TRAIN_ROW for rows of train.
        """

    def join(self, op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
        """Return the joined columns of a table by id: row i belongs to id i; rows of the three special ids are null.

        Args:
            op: The join.
            table: The raw table.
            keys: The vocabulary of the key.

        Raises:
            DataError: The table has a duplicate key.
        """


def check_ops(engine: Engine, ops: Sequence[Op]) -> None:
    """Check the support of an engine for all ops of a plan.

    Raises:
        ConfigError: The engine has no implementation of an op; the message lists all such ops.
    """
    problems = [
        f"features.ops.{index}: {reason}"
        for index, op in enumerate(ops)
        if op.phase == "columns" and (op.acts or op.fitted) and (reason := engine.refuses(op)) is not None
    ]
    if problems:
        raise ConfigError("\n".join(problems), hint="choose another etl.engine, or remove the op")


def choose(name: str, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> tuple[str, Engine]:
    """Return the name and the engine of a name; `auto` selects the fastest engine available on this machine.

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
