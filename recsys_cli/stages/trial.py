"""One trial of `recsys tune`: an ordinary training run with a check for pruning after each epoch."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from recsys_cli.config import RunConfig, vary
from recsys_cli.errors import ConfigError, LockedError, RecsysError, TrainingError
from recsys_cli.events import Emit, Event, Progress
from recsys_cli.stages.run_selection import run_key, train_lock, unfinished_run
from recsys_cli.stages.train import train_on
from recsys_cli.training.objective import Monitor
from recsys_cli.tuning.trial import EpochFigure, State, Trial, best_of
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace

if TYPE_CHECKING:
    from recsys_cli.tuning.study import Study


_OUT_OF_MEMORY = re.compile(r"out of memory|allocate memory", re.IGNORECASE)
"""Messages of torch's RuntimeError for insufficient memory of a GPU or CPU."""


class _Pruned(Exception):  # noqa: N818 - not an error
    """Ends the training of a pruned trial."""


@dataclass(frozen=True)
class _TrialEnd:
    state: State
    quality: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Attempt:
    """An attempt at a trial; `base` is the config without its values, `deadline` the end of the search by `time.monotonic`."""

    study: Study
    trial: Trial
    data: PreparedData
    base: RunConfig
    monitor: Monitor
    workspace: Workspace
    emit: Emit
    deadline: float

    def run(self) -> None:
        """Complete the trial.

        Raises:
            RecsysError: An error unrelated to the trial's values; the trial can be attempted again.
            KeyboardInterrupt: Interrupted; the trial can be resumed.
        """
        start = time.perf_counter()
        try:
            end = self._train()
        except (KeyboardInterrupt, RecsysError):
            # A clean end does not count against the number of attempts.
            self.study.note(self.trial, begun=self.trial.notes["begun"] - 1, seconds=self._seconds(start))
            raise
        if end.state != "finished":
            gc.collect()  # frees the memory of an interrupted training
            torch.cuda.empty_cache()
        self.study.end(self.trial, end.state, quality=end.quality, seconds=self._seconds(start), **end.notes)

    def _seconds(self, start: float) -> float:
        return round(self.trial.notes.get("seconds", 0.0) + time.perf_counter() - start, 3)

    def _train(self) -> _TrialEnd:
        try:
            config = vary(self.base, self.trial.overrides)
        except ConfigError as error:  # a combination of values that is invalid
            return _TrialEnd("failed", notes={"message": error.message})
        try:
            return self._train_with(config)
        except _Pruned:
            end = _TrialEnd("pruned")
        except (TrainingError, ConfigError, MemoryError, RuntimeError) as error:
            end = _TrialEnd("failed", notes={"message": _failure(error)})
        self._remove_run(run_key(config, self.data))
        return end

    def _train_with(self, config: RunConfig) -> _TrialEnd:
        unfinished = unfinished_run(self.workspace, run_key(config, self.data))
        resume = unfinished is not None and self._is_own(unfinished)
        with _TrialListener(
            self.study, self.trial, self.monitor, config.train.epochs, self.emit, self.deadline
        ) as listener:
            result = train_on(self.data, config, self.workspace, resume=resume, emit=listener)
        manifest = result.artifact.manifest
        history = [epoch_figure(self.monitor, record) for record in manifest["history"]]
        for figure in history:  # includes epochs of a killed attempt, and of an existing run
            self.study.report(self.trial, figure)
        best = history[manifest["best_epoch"] - 1]
        notes = {"value": best.value, "run": result.artifact.folder.name, "own": not result.up_to_date}
        return _TrialEnd("finished", best.quality, notes)

    def _is_own(self, run: TrainedRun) -> bool:
        """Return whether a run was started by this trial."""
        return run.folder.name >= self.trial.notes["since"]

    def _remove_run(self, key: str) -> None:
        """Remove unfinished runs of a key, unless another process trains one."""
        with suppress(LockedError), self.workspace.lock(train_lock(key), timeout=0):
            for run in self.workspace.runs():
                if not run.exists and run.folder.name.endswith(key[:8]) and self._is_own(run):
                    self.workspace.remove(run)


@dataclass
class _TrialListener:
    """Reports each epoch of a trial's training to the study, and prunes.

    Progress is forwarded; messages of epochs are not, because the table of trials has them.
    """

    study: Study
    trial: Trial
    monitor: Monitor
    epochs: int
    emit: Emit
    deadline: float
    bar: Progress | None = None

    def __enter__(self) -> _TrialListener:
        return self

    def __exit__(self, *error: object) -> None:
        """Complete the progress bar of an interrupted training."""
        if self.bar is not None and self.bar.total is not None and self.bar.done < self.bar.total:
            self.emit(replace(self.bar, done=self.bar.total))

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.bar = event
            self.emit(event)
            return
        if "epoch" not in event.facts:
            self.emit(event)
            return
        should_prune = self.study.report(self.trial, epoch_figure(self.monitor, event.facts))
        should_prune |= time.monotonic() > self.deadline and best_of(self.study.trials()) is not None
        if should_prune and event.facts["epoch"] < self.epochs:
            raise _Pruned


def epoch_figure(monitor: Monitor, record: Mapping[str, Any]) -> EpochFigure:
    """Return the monitored metric of an epoch record."""
    if record["valid"] and monitor.name not in record["valid"]:
        measured = " or ".join(sorted(record["valid"]))
        raise ConfigError(f"{monitor.name} cannot be measured on this data", hint=f"set train.monitor to {measured}")
    quality = monitor.quality(record["valid"])
    assert quality is not None  # there is a valid split
    return EpochFigure(record["epoch"], record["valid"].get(monitor.name), quality)


def _failure(error: Exception) -> str:
    """Return the message of an error caused by a trial's values; raise any other again."""
    if isinstance(error, RecsysError):
        return error.message
    first = str(error).partition("\n")[0]
    if isinstance(error, MemoryError):
        return f"out of memory: {first}" if first else "out of memory"
    if _OUT_OF_MEMORY.search(first):
        return first
    raise error
