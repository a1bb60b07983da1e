"""The NVTabular 23.08 engine: workflows on shards, with nulls, types and order handled outside."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.engine import Aggregates, PassSteps, state_of
from recsys_cli.etl.engines import OWN
from recsys_cli.etl.implementations import refusal
from recsys_cli.etl.nvtabular_engine import frames, join_external
from recsys_cli.etl.nvtabular_engine.computing import computing
from recsys_cli.etl.nvtabular_engine.frames import single_threaded
from recsys_cli.etl.nvtabular_engine.ops import MODULES
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.features.columns import ROW_WEIGHT
from recsys_cli.ops import JoinExternal
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import PlanStep


class NVTabularEngine:
    """NVTabular of NVIDIA Merlin: pandas on a CPU, cuDF on a GPU.

    Each op is a workflow of its own, because ties, nulls and keys without a match need handling between ops. Inputs
    have no nulls, no lists except of ids, and neutral column names.
    """

    threads: int | None = 1  # NVTabular caches vocabularies per process, by name

    def __init__(self, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> None:
        self.scratch = scratch
        self.device = device
        self._emit: Emit | None = emit

    def __getstate__(self) -> dict[str, Any]:
        """Drop the listener: it is local to the process."""
        return self.__dict__ | {"_emit": None}

    @classmethod
    def missing(cls, device: str = "cpu") -> MissingExtraError | None:
        """See `Engine.missing`."""
        return OWN["nvtabular"].missing(device)

    def refuses(self, op: Op) -> str | None:
        """See `Engine.refuses`."""
        return refusal(op, "nvtabular", MODULES)

    def learn(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Aggregates:
        """See `Engine.learn`."""
        self._report_device()
        if ROW_WEIGHT in rows.column_names:
            rows = _repeated(rows)
        learnt: Aggregates = {}
        with self._folder() as folder:
            for position, (step, verb) in enumerate(walk):
                if verb == "apply":
                    rows = computing(step.op).apply(step.op, state_of(step, fitted), rows, folder / str(position))
                else:
                    partials = computing(step.op).learn(step.op, rows, folder / str(position))
                    learnt |= {(step.index, name): table for name, table in partials.items()}
        return learnt

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """See `Engine.apply`."""
        with self._folder() as folder:
            for position, step in enumerate(steps):
                rows = computing(step.op).apply(step.op, state_of(step, fitted), rows, folder / str(position))
        return rows

    def join(self, op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
        """See `Engine.join`."""
        return join_external.by_id(op, table, keys)

    def _report_device(self) -> None:
        """Warn once about another device than `etl.device`: NVTabular always uses a visible GPU."""
        emit, self._emit = self._emit, None
        if emit is not None and (actual := frames.device()) != self.device:
            reason = "no GPU found" if actual == "cpu" else "set CUDA_VISIBLE_DEVICES= to hide the GPU"
            emit(
                Message(f"NVTabular runs on the {actual.upper()}, not on etl.device={self.device}: {reason}", "warning")
            )

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Yield a folder for NVTabular's files, by default in the working directory."""
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix="nvtabular-") as folder, single_threaded():
            yield Path(folder)


def _repeated(rows: pa.Table) -> pa.Table:
    """Repeat every row by its ROW_WEIGHT, because NVTabular does not support weights."""
    weights = rows.column(ROW_WEIGHT).to_numpy()
    return rows.drop_columns([ROW_WEIGHT]).take(pa.array(np.repeat(np.arange(rows.num_rows), weights)))
