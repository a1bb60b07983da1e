"""One trial of `recsys tune`: an ordinary training run, watched after each epoch, whose end is the trial's end."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from recsys_cli.config import RunConfig, vary
from recsys_cli.errors import ConfigError, RecsysError, TrainingError
from recsys_cli.events import Emit, Event, Progress
from recsys_cli.stages.run_selection import run_key, unfinished_run
from recsys_cli.stages.train import train_on
from recsys_cli.training.objective import Monitor
from recsys_cli.tuning.trial import EpochFigure, State, Trial
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace

if TYPE_CHECKING:
    from recsys_cli.tuning.study import Study


_OUT_OF_MEMORY = re.compile(r"out of memory|allocate memory", re.IGNORECASE)
"""What torch says, in a RuntimeError, of a GPU and of a CPU whose memory is not enough."""


class _TooFarBehind(Exception):  # noqa: N818 - it is no error
    """Leaves a training that is too far behind."""


@dataclass(frozen=True)
class _TrialEnd:
    state: State
    quality: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Attempt:
    """An attempt at a trial.

    Attributes:
        study: Where its end is noted.
        trial: A running one.
        data: What to train on.
        base: The config that its values are put over.
        monitor: What its epochs are judged by.
        workspace: Where its run goes.
        emit: Is told how it goes.
    """

    study: Study
    trial: Trial
    data: PreparedData
    base: RunConfig
    monitor: Monitor
    workspace: Workspace
    emit: Emit

    def make(self) -> None:
        """Bring the trial to its end.

        Raises:
            RecsysError: Something is wrong that is not the trial's; it can be attempted again.
            KeyboardInterrupt: It was interrupted, and can be gone on with.
        """
        began = time.perf_counter()
        try:
            end = self._as_before() or self._train()
        except (KeyboardInterrupt, RecsysError):
            # It ended in order: this attempt is none of those that count against the trial.
            self.study.note(self.trial, begun=self.trial.notes["begun"] - 1, seconds=self._seconds(began))
            raise
        if end.state != "finished":
            gc.collect()  # what a training that was broken off held
            torch.cuda.empty_cache()
        self.study.end(self.trial, end.state, quality=end.quality, seconds=self._seconds(began), **end.notes)

    def _seconds(self, began: float) -> float:
        return round(self.trial.notes.get("seconds", 0.0) + time.perf_counter() - began, 3)

    def _as_before(self) -> _TrialEnd | None:
        """Return how an earlier trial of the same values ended: where there are few choices, one is soon made twice."""
        trials = self.study.trials()[: self.trial.number - 1]
        same = next((other for other in trials if other.changes == self.trial.changes), None)
        if same is None:
            return None
        for measured in same.curve:
            self.study.report(self.trial, measured)
        notes = {"message": f"the same values as trial {same.number}", "value": same.value}
        return _TrialEnd("failed" if same.state == "running" else same.state, same.quality, notes)

    def _train(self) -> _TrialEnd:
        try:
            config = vary(self.base, self.trial.overrides)
        except ConfigError as error:  # values that are good each by itself, and not together
            return _TrialEnd("failed", notes={"message": error.message})
        try:
            return self._run(config)
        except _TooFarBehind:
            end = _TrialEnd("pruned")
        except (TrainingError, ConfigError, MemoryError, RuntimeError) as error:
            end = _TrialEnd("failed", notes={"message": _failure(error)})
        self._clear(run_key(config, self.data))
        return end

    def _run(self, config: RunConfig) -> _TrialEnd:
        begun = unfinished_run(self.workspace, run_key(config, self.data))
        resume = begun is not None and self._made(begun)
        with _TrialListener(self.study, self.trial, self.monitor, config.train.epochs, self.emit) as watch:
            made = train_on(self.data, config, self.workspace, resume=resume, emit=watch)
        manifest = made.artifact.manifest
        history = [measured(self.monitor, record) for record in manifest["history"]]
        for then in history:  # what an attempt that was killed could not report, or a run that was there already
            self.study.report(self.trial, then)
        best = history[manifest["best_epoch"] - 1]
        notes = {"value": best.value, "run": made.artifact.folder.name, "own": not made.up_to_date}
        return _TrialEnd("finished", best.quality, notes)

    def _made(self, run: TrainedRun) -> bool:
        """Whether a run is of this trial, rather than one that somebody else began before it."""
        return run.folder.name >= self.trial.notes["since"]

    def _clear(self, key: str) -> None:
        """Remove what the run left."""
        for run in self.workspace.runs():
            if not run.exists and run.folder.name.endswith(key[:8]) and self._made(run):
                self.workspace.remove(run)


@dataclass
class _TrialListener:
    """Hears what the training of a trial says: notes how good each epoch was, and leaves where it is too far behind.

    Bars go on to the caller; an epoch's line does not, for the table has it.
    """

    study: Study
    trial: Trial
    monitor: Monitor
    epochs: int
    emit: Emit
    bar: Progress | None = None

    def __enter__(self) -> _TrialListener:
        return self

    def __exit__(self, *error: object) -> None:
        """End the bar of a training that was broken off."""
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
        is_behind = self.study.report(self.trial, measured(self.monitor, event.facts))
        if is_behind and event.facts["epoch"] < self.epochs:
            raise _TooFarBehind


def measured(monitor: Monitor, record: Mapping[str, Any]) -> EpochFigure:
    """Return how good an epoch was, from its record."""
    if record["valid"] and monitor.name not in record["valid"]:
        there = " or ".join(sorted(record["valid"]))
        raise ConfigError(f"{monitor.name} cannot be measured on this data", hint=f"set train.monitor to {there}")
    quality = monitor.quality(record["valid"])
    assert quality is not None  # there is a valid split
    return EpochFigure(record["epoch"], record["valid"].get(monitor.name), quality)


def _failure(error: Exception) -> str:
    """Say what is wrong with a trial's values; an error that may be of anything else goes on."""
    if isinstance(error, RecsysError):
        return error.message
    first = str(error).partition("\n")[0]
    if isinstance(error, MemoryError):
        return f"out of memory: {first}" if first else "out of memory"
    if _OUT_OF_MEMORY.search(first):
        return first
    raise error
