"""The engine on NVTabular 23.08: real workflows, some rows at a time, around which inputs and order are made exact."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.engine import Aggregates, PassSteps
from recsys_cli.etl.engines import OWN
from recsys_cli.etl.implementations import load, refusal
from recsys_cli.etl.nvtabular_engine import frames, join_external
from recsys_cli.etl.nvtabular_engine.frames import alone
from recsys_cli.etl.nvtabular_engine.ops import MODULES
from recsys_cli.etl.nvtabular_engine.weighted import repeated
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.features.columns import ROW_WEIGHT
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.ops import JoinExternal
from recsys_cli.features.ops.op import Op
from recsys_cli.features.program import PlanStep


class Computing(Protocol):
    """What a module of this engine provides for an op; `learn` only where the op learns."""

    def apply(self, op: Any, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:
        """Add or change the op's columns; rows keep their number and their order."""

    def learn(self, op: Any, rows: pa.Table, folder: Path) -> Mapping[str, pa.Table]:
        """Return what some rows tell."""


class NVTabularEngine:
    """NVTabular, as users of Merlin know it: pandas on a CPU, cuDF on a GPU.

    One workflow does not do: ties, nulls and keys without a match have to be handled between its ops. So each op is a
    workflow of its own, and what goes in has no nulls, no lists but those of ids, and none of the user's column names.
    """

    threads: int | None = 1  # NVTabular keeps vocabularies in the process, by name

    def __init__(self, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> None:
        self.scratch = scratch
        self.device = device
        self._emit: Emit | None = emit

    def __getstate__(self) -> dict[str, Any]:
        """Leave the listener behind: on another process nobody would hear it."""
        return self.__dict__ | {"_emit": None}

    @classmethod
    def missing(cls, device: str = "cpu") -> MissingExtraError | None:
        """Return the package that is missing or of the wrong release, or None."""
        return OWN["nvtabular"].missing(device)

    def refuses(self, op: Op) -> str | None:
        """Return why it cannot compute an op; None where it can."""
        return refusal(op, "nvtabular", MODULES)

    def learn(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Aggregates:
        """Go over some rows of train, applying and learning as `walk` says."""
        self._tell_device()
        if ROW_WEIGHT in rows.column_names:
            rows = repeated(rows)  # NVTabular knows no weights
        learnt: Aggregates = {}
        with self._folder() as folder:
            for position, (step, verb) in enumerate(walk):
                if verb == "apply":
                    rows = _computing(step).apply(step.op, _state(step, fitted), rows, folder / str(position))
                else:
                    found = _computing(step).learn(step.op, rows, folder / str(position))
                    learnt |= {(step.index, name): table for name, table in found.items()}
        return learnt

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """Send rows through steps, one after the other."""
        with self._folder() as folder:
            for position, step in enumerate(steps):
                rows = _computing(step).apply(step.op, _state(step, fitted), rows, folder / str(position))
        return rows

    def join(self, op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
        """Return a table's joined columns by encoded key."""
        return join_external.by_id(op, table, keys)

    def _tell_device(self) -> None:
        """Say once where NVTabular works, if that is not where it should: it takes a GPU that it finds, and only that."""
        emit, self._emit = self._emit, None
        if emit is not None and (found := frames.device()) != self.device:
            why = "it found no GPU" if found == "cpu" else "it found a GPU; CUDA_VISIBLE_DEVICES= keeps it off"
            emit(Message(f"NVTabular works on the {found.upper()}, not on etl.device={self.device}: {why}", "warning"))

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Give a folder for what NVTabular writes, which else would go to the working directory."""
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix="nvtabular-") as folder, alone():
            yield Path(folder)


def _computing(step: PlanStep) -> Computing:
    return cast("Computing", load(step.op, "nvtabular", MODULES))


def _state(step: PlanStep, fitted: FittedPlan) -> dict[str, pa.Table]:
    return {name: fitted.state[step.index, name] for name in step.op.states}
