"""What an engine has to do, and which one `auto` takes.

Rows are chosen, split and dealt before (`staging`); what engines learn from parts of train is merged after them (`aggregators`);
neither depends on the engine.
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
from recsys_cli.plugins import require_subclass
from recsys_cli.registry import ENGINES, is_own, load, lookup

Walk = Sequence[tuple[PlanStep, Literal["fit", "apply"]]]
Learnt = dict[tuple[int, str], pa.Table]
"""What one part of train tells, by position of the op and name of the table: to be merged with that of other parts."""


class Engine(Protocol):
    """Computes the ops of a plan. All engines give the same result to the bit, floats within 1e-6.

    Those of other packages derive from this class (docs/security.md).

    Attributes:
        device: "cpu" or "gpu".
        threads: How many parts it may be given at the same time; None for as many as there are processors.
    """

    device: str
    threads: int | None

    def __init__(self, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> None:
        """Take a folder for what it has to write on the way, and whom to tell what does not run where it should."""

    @classmethod
    def missing(cls, device: str = "cpu") -> MissingExtraError | None:
        """Return why the engine cannot run here on a device, or None; decided without importing what it needs."""

    def refuses(self, op: Op) -> str | None:
        """Return why it cannot compute an op of phase "columns"; None where it can, and by default."""
        del op
        return None

    def learn(self, walk: Walk, fitted: FittedPlan, rows: pa.Table) -> Learnt:
        """Go over some rows of train, applying and learning as `walk` says.

        Args:
            walk: Steps of one table, in order.
            fitted: What is learnt so far.
            rows: Some rows of train, maybe none, with ROW_WEIGHT where they are those of a table by id.
        """

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """Send rows through steps, one after the other; rows keep their number and their order.

        Args:
            steps: Steps of one table, in order.
            fitted: Everything that was learnt.
            rows: Some rows, maybe none, with TRAIN_ROW where they are rows of train.
        """

    def join(self, op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
        """Return a table's joined columns by encoded key: row i belongs to id i; the first three have no match.

        Args:
            op: The join.
            table: What is joined.
            keys: The key's vocabulary.

        Raises:
            DataError: A key stands twice in the table.
        """


def check_ops(engine: Engine, ops: Sequence[Op]) -> None:
    """Check that an engine computes all ops of a plan, before any row is read.

    Raises:
        ConfigError: It has no implementation of one of them; the message names both.
    """
    problems = [
        f"features.ops.{index}: {reason}"
        for index, op in enumerate(ops)
        if op.phase == "columns" and (op.acts or op.fitted) and (reason := engine.refuses(op)) is not None
    ]
    if problems:
        raise ConfigError("\n".join(problems), hint="choose another etl.engine, or leave the op out")


def choose(name: str, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> tuple[str, Engine]:
    """Return the engine of a name, or for `auto` the fastest that this machine can run, with its name.

    Raises:
        ConfigError: There is no such engine.
        MissingExtraError: It is not installed, or what it needs for the device is not.
    """
    if name == "auto":
        name = best(device)
    path = lookup(ENGINES, name, what="engine")
    engine: type[Engine] = load(path)
    if not is_own(path):
        require_subclass(engine, Engine, path)
    if (missing := engine.missing(device)) is not None:
        raise missing
    return name, engine(scratch, device=device, emit=emit)
