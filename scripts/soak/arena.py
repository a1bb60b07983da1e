"""Where a soak takes place: a small workspace, copied for every attempt, and commands in forked processes.

The process that is forked has loaded everything, so that an attempt costs its work and no imports.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import recsys_cli
from recsys_cli.errors import MissingExtraError

CONFIG = """
dataset: {name: synthetic, users: 120, items: 60, rows: 3000}
split: {method: random, valid: 0.15, test: 0.15}
features:
  user: userId
  item: movieId
  label: label
  timestamp: timestamp
  ops:
    - {op: JoinExternal, table: movies, on: movieId, columns: [genres]}
    - {op: Categorify, columns: [userId, movieId, genres]}
    - {op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}
model: {name: mlp, embedding_dim: 8, hidden_dims: [16], dropout: 0.1}
train: {epochs: 3, batch_size: 256, learning_rate: 0.01, checkpoint_steps: 5, device: cpu, trackers: []}
evaluate: {k: [10], bootstrap: 10}
bench: {models: [popularity, mlp], seeds: [1, 2]}
tune: {trials: 4, space: {train.learning_rate: {low: 0.001, high: 0.1, log: true}}}
"""
_IMPORTED_AT_WORK = (
    "faiss", "onnxscript", "optuna", "orjson", "polars", "pyarrow.parquet", "scipy.sparse", "torch.export", "uvicorn", "uvloop",
)  # fmt: skip
_NOT_LOADED = {"__main__", "lightgbm", "mlflow", "saved_model", "sharding", "wandb"}
"""Modules of large extras; threads of TensorFlow do not survive a fork."""


@dataclass(frozen=True)
class Answer:
    """What a command left behind: its exit code (negative: the signal that ended it) and what it printed."""

    code: int
    text: str

    @property
    def json(self) -> Any:
        """The JSON object that it printed; lines of progress stand before it."""
        return json.loads(self.text[self.text.index("{") :])


@dataclass
class Outcome:
    """What a part of the soak found.

    Attributes:
        name: Of the part.
        counts: How often each thing was done, or ended in each way.
        failures: What should not have happened, each with what is needed to do it again.
    """

    name: str
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def count(self, what: str) -> None:
        """Count one more."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def expect(self, holds: bool, what: str, answer: Answer | None = None) -> None:
        """Note a failure unless something holds, and print it at once."""
        if not holds:
            self.failures.append(f"{self.name}: {what}" + (f"\n{answer.code}: {answer.text[-1500:]}" if answer else ""))
            print(f"FAILED {self.failures[-1]}\n", flush=True)


def preload() -> None:
    """Load the package and what it imports at work; torch must not have started threads when a process is forked."""
    os.environ["OMP_NUM_THREADS"] = "1"
    modules = [one.name for one in pkgutil.walk_packages(recsys_cli.__path__, "recsys_cli.")]
    for name in [*_IMPORTED_AT_WORK, *(one for one in modules if one.rpartition(".")[2] not in _NOT_LOADED)]:
        with suppress(ImportError, MissingExtraError):
            importlib.import_module(name)


class Arena:
    """A folder with a config and a workspace, and the command in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "x.yaml").write_text(CONFIG)

    def start(self, *line: str, before: Callable[[], None] | None = None) -> Process:
        """Start a command as a process of its own."""
        # Not in the folder: a full disk has no space for the text.
        output = Path(tempfile.gettempdir()) / f"recsys-soak-out-{os.getpid()}-{time.monotonic_ns()}.txt"
        pid = os.fork()
        if pid == 0:
            _child(self.folder, output, line, before)
        return Process(pid, output)

    def run(self, *line: str, before: Callable[[], None] | None = None) -> Answer:
        """Run a command to its end."""
        return self.start(*line, before=before).wait()

    def copy(self, folder: Path) -> Arena:
        """Return a copy of all of it; times of files stay."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return Arena(folder)

    def figures(self) -> Any:
        """Return what the evaluation of the latest run found."""
        run = sorted(self.workspace.glob("runs/*/evaluation.json"))[-1]
        found = json.loads(run.read_text())
        return {kind: found[kind] for kind in ("pointwise", "ranking")}


class Process:
    """A command at work."""

    def __init__(self, pid: int, output: Path) -> None:
        self.pid = pid
        self._output = output
        self._code: int | None = None

    def kill(self) -> bool:
        """End it at once; return whether it was still at work."""
        if self._done():
            return False
        os.kill(self.pid, signal.SIGKILL)
        self.wait()
        return self._code == -signal.SIGKILL

    def wait(self, *, seconds: float = 300) -> Answer:
        """Wait for its end; one that takes too long is killed, which shows in its code."""
        deadline = time.monotonic() + seconds
        while not self._done():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.005)
        assert self._code is not None
        text = self._output.read_text(errors="replace") if self._output.is_file() else ""
        self._output.unlink(missing_ok=True)
        return Answer(self._code, text)

    def _done(self) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code is not None


def _child(folder: Path, output: Path, line: tuple[str, ...], before: Callable[[], None] | None) -> None:
    code = 70
    try:
        os.chdir(folder)
        target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
        if before is not None:
            before()
        from recsys_cli.cli import app

        try:
            app(list(line))
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def template(folder: Path) -> Arena:
    """Return an arena where everything was done once.

    Raises:
        RuntimeError: A command failed.
    """
    arena = Arena(folder)
    answer = arena.run("run", "x.yaml")
    if answer.code:
        raise RuntimeError(answer.text)
    return arena


def check_status(arena: Arena, outcome: Outcome, what: str) -> None:
    """See that `status` answers, and finds nothing damaged."""
    answer = arena.run("status", "--json")
    outcome.expect(answer.code == 0, f"status after {what}", answer)
    if answer.code == 0:
        found = answer.json
        problems = [one["problem"] for kind in ("raw", "data", "runs", "studies") for one in found[kind]]
        outcome.expect(not any(problems), f"damage after {what}: {problems}")
