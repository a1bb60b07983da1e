"""The NVTabular 23.08 engine: its Categorify and numeric ops in workflows, the other ops on NumPy."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.engine import OWN, Aggregates, Engine, PassSteps, state_of
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.nvtabular import device, single_threaded
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import PlanStep


class NVTabularEngine(Engine):
    """NVTabular of NVIDIA Merlin: pandas on a CPU, cuDF on a GPU.

    Each op is a workflow of its own, because ties and nulls need handling between ops. Inputs have no nulls, no lists and
    neutral column names. Ops without an equal one in NVTabular run on NumPy, and are fitted on Polars.
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
        return op.refusal("nvtabular")

    def learn(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Aggregates:
        """See `Engine.learn`."""
        self._report_device()
        learnt: Aggregates = {}
        with self._folder() as folder:
            for position, (step, verb) in enumerate(walk):
                if verb == "apply":
                    rows = step.op.nvtabular(state_of(step, fitted), rows, folder / str(position))
                else:
                    partials = step.op.learn_on_nvtabular(rows, folder / str(position))
                    learnt |= {(step.index, name): table for name, table in partials.items()}
        return learnt

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """See `Engine.apply`."""
        with self._folder() as folder:
            for position, step in enumerate(steps):
                rows = step.op.nvtabular(state_of(step, fitted), rows, folder / str(position))
        return rows

    def _report_device(self) -> None:
        """Warn once about another device than `etl.device`: NVTabular always uses a visible GPU."""
        emit, self._emit = self._emit, None
        if emit is not None and (actual := device()) != self.device:
            reason = "no GPU found" if actual == "cpu" else "set CUDA_VISIBLE_DEVICES= to hide the GPU"
            emit(
                Message(f"NVTabular runs on the {actual.upper()}, not on etl.device={self.device}: {reason}", "warning")
            )

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Yield a folder for NVTabular's files, by default in the working directory."""
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix="nvtabular-") as folder, single_threaded():
            yield Path(folder)
