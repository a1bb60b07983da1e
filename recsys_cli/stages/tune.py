"""`recsys tune`: hyperparameter search on prepared data.

A trial is an ordinary run with a check for pruning after each epoch. Only the best one is kept; others are removed unless
they existed before or are evaluated. The metrics of all trials stay in the study.
"""

from __future__ import annotations

import gc
import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from recsys_cli.config import RunConfig, TuneConfig, dump, vary
from recsys_cli.config.load import model_config, model_config_type, search_space
from recsys_cli.config.tune import Values
from recsys_cli.errors import ConfigError, DataError, LockedError, MissingExtraError, RecsysError, TrainingError
from recsys_cli.events import Emit, Event, Message, Progress, ignore
from recsys_cli.registry import AUTO
from recsys_cli.stages import StageResult
from recsys_cli.stages.auto import chosen_config
from recsys_cli.stages.cluster import open_cluster
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.monitor import order_of
from recsys_cli.stages.run_selection import run_key, train_lock, unfinished_run
from recsys_cli.stages.train import train_on
from recsys_cli.training import hardware
from recsys_cli.training.member import refuse_torchrun
from recsys_cli.training.objective import Monitor
from recsys_cli.tuning.report import show
from recsys_cli.tuning.trial import EpochFigure, State, Trial, best_of, gather, line
from recsys_cli.workspace import (
    PreparedData,
    TrainedRun,
    TunedStudy,
    Workspace,
    key_of,
    run_lock,
    whole,
    write_manifest,
    write_text,
)

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


def _is_of(trial: Trial, run: TrainedRun) -> bool:
    """Return whether a trial started a run."""
    return run.folder.name >= trial.notes["since"]


def remove_unfinished(workspace: Workspace, key: str, trial: Trial) -> None:
    """Remove a trial's unfinished runs of a key, unless another process trains one."""
    with suppress(LockedError), workspace.lock(train_lock(key), timeout=0):
        for run in workspace.runs():
            if not run.exists and run.folder.name.endswith(key[:8]) and _is_of(trial, run):
                workspace.remove(run)


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


_ATTEMPTS = 3
"""Highest number of attempts at a trial after kills of its process, for example by lack of memory."""


def tune(
    config: RunConfig, workspace: Workspace, *, force: bool = False, emit: Emit = ignore
) -> StageResult[TunedStudy]:
    """Run trials up to the number in the config; a second call resumes the study, or with `force` starts anew.

    Raises:
        ConfigError: Neither the config nor its model has a search space, or the device does not exist.
        MissingExtraError: Optuna is not installed.
        MissingArtifactError: The data is not prepared.
        DataError: The data has no valid split, or a label is invalid.
        TrainingError: All trials failed.
        KeyboardInterrupt: Interrupted; the next call resumes the trial.
    """
    refuse_torchrun("each process of recsys tune searches by itself")
    data = prepared_data(config, workspace)
    if config.model.name == AUTO:
        config = chosen_config(config, data, workspace)
    return tune_on(data, config, workspace, force=force, emit=emit)


def tune_on(
    data: PreparedData, config: RunConfig, workspace: Workspace, *, force: bool = False, emit: Emit = ignore
) -> StageResult[TunedStudy]:
    """Tune on prepared data; see `tune`."""
    if not data.rows("valid"):
        raise DataError("the data has no valid split to compare trials", hint=config.split.more_valid)
    hardware.device(config.train.device)
    artifact = workspace.study(study_key(config, data))
    search = _Search(data, config, _options(config), workspace, artifact, emit, force)
    num_trials = _search_on_cluster(data, config, workspace, emit) if search.has_trials() else 0
    while search.run_trial():
        num_trials += 1
    if not search.artifact.exists:
        search.write()
    search.check()
    return StageResult(search.artifact, up_to_date=not num_trials)


def _search_on_cluster(data: PreparedData, config: RunConfig, workspace: Workspace, emit: Emit) -> int:
    """Run trials of the study in each thread of a cluster, if any; return their number."""
    with open_cluster(config.etl.cluster, workspace, emit, workers=config.etl.workers) as cluster:
        if cluster is None:
            return 0
        emit(Message(f"the workers of {config.etl.cluster} run {cluster.facts['threads']} trials at once"))
        task = partial(_run_trials, data=data, config=config, workspace=workspace)
        return sum(cluster.map(task, range(cluster.facts["threads"])))


def _run_trials(number: int, *, data: PreparedData, config: RunConfig, workspace: Workspace) -> int:
    """Run trials until the study is complete, and return their number: a task of an executor."""
    del number
    search = _Search(
        data, config, _options(config), workspace, workspace.study(study_key(config, data)), ignore, force=False
    )
    return sum(1 for _ in iter(search.run_trial, False))


def study_key(config: RunConfig, data: PreparedData) -> str:
    """Return the hash of all inputs of the trials, without their number."""
    inputs = _options(config).model_dump(mode="json", exclude={"trials", "minutes"})
    return key_of("tune", run_key(config, data), inputs)


def _options(config: RunConfig) -> TuneConfig:
    """Return the `tune` section with a search space: its own, or the default one of the model."""
    section = config.tune or TuneConfig()
    space = section.space or search_space(model_config_type(config.model.name))
    if not space:
        raise ConfigError(
            f"{config.model.name} has no default search space, and the config has no tune section with one",
            hint="add one, such as  tune: {space: {train.learning_rate: {low: 1e-4, high: 0.1, log: true}}}",
        )
    epochs = section.pruning_epochs or max(1, config.train.epochs // 4)
    return section.model_copy(update={"space": space, "pruning_epochs": epochs})


def _values_in(space: Mapping[str, Values], config: RunConfig) -> dict[str, Any]:
    """Return the config's own values by key, without those outside the search space."""
    options = model_config(config.model.name, config.model.options)
    own = {"model": options.model_dump(mode="json"), "train": config.train.model_dump(mode="json")}
    found = {}
    for key, values in space.items():
        value: Any = own
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if values.holds(value):
            found[key] = value
    return found


@dataclass
class _Search:
    """Search of one process; several processes may share a study."""

    data: PreparedData
    config: RunConfig
    options: TuneConfig
    workspace: Workspace
    artifact: TunedStudy
    emit: Emit
    force: bool

    def __post_init__(self) -> None:
        self.monitor = order_of(self.config.train.monitor)
        self.deadline = time.monotonic() + 60 * (self.options.minutes or math.inf)
        self.first = _values_in(self.options.space, self.config)
        self._limit_trials()
        self.study = self._open_new() if self.force else self._open()

    def _limit_trials(self) -> None:
        """Limit the trials to the combinations of values, and the config's own ones if they are no such combination."""
        most, wanted = self.options.combinations, self.options.trials
        if most is not None and (most := most + (len(self.first) < len(self.options.space))) < wanted:
            self.emit(
                Message(f"the search space has {most:,} combinations of values: {most:,} trials instead of {wanted:,}")
            )
            self.options = self.options.model_copy(update={"trials": most})

    def _open_new(self) -> Study:
        """Remove the study, if any, and open an empty one."""
        try:
            study = self._open()
        except DataError:  # a damaged study
            self.workspace.remove(self.artifact)
            return self._open()
        with self._lock(), ExitStack() as locks:
            for trial in study.trials():
                if trial.state == "running":
                    locks.enter_context(self._trial_lock(trial.number))
            self.workspace.remove(self.artifact)
        return self._open()

    def has_trials(self) -> bool:
        """Whether the study is incomplete."""
        trials = self.study.trials()
        return len(trials) < self.options.trials or any(trial.state == "running" for trial in trials)

    def run_trial(self) -> bool:
        """Run a new trial, or resume one of an ended process; return False without trials left."""
        if self._is_over():
            self.emit(Message(f"{self.options.minutes:g} minutes are over; the same command continues the search"))
            return False
        with ExitStack() as locks:
            trial = self._claim(locks)
            if trial is None:
                return False
            self.emit(Message(f"trial {trial.number} of {self.options.trials}: {line(trial) or 'the config'}"))
            self._attempt(trial)
            self._remove_other_runs()
        self.write()
        self._report(trial.number)
        return True

    def _is_over(self) -> bool:
        """Return whether the time is over and there is a finished trial."""
        return time.monotonic() > self.deadline and best_of(self.study.trials()) is not None

    def _attempt(self, trial: Trial) -> None:
        """Complete a trial.

        Raises:
            RecsysError: An error unrelated to the trial's values; the trial can be attempted again.
            KeyboardInterrupt: Interrupted; the trial can be resumed.
        """
        start, before = time.perf_counter(), trial.notes.get("seconds", 0.0)
        try:
            end = self._train(trial)
        except (KeyboardInterrupt, RecsysError):
            # A clean end does not count against the number of attempts.
            seconds = round(before + time.perf_counter() - start, 3)
            self.study.note(trial, begun=trial.notes["begun"] - 1, seconds=seconds)
            raise
        if end.state != "finished":
            gc.collect()  # frees the memory of an interrupted training
            torch.cuda.empty_cache()
        seconds = round(before + time.perf_counter() - start, 3)
        self.study.end(trial, end.state, quality=end.quality, seconds=seconds, **end.notes)

    def _train(self, trial: Trial) -> _TrialEnd:
        try:
            config = vary(self.config, trial.overrides)
        except ConfigError as error:  # a combination of values that is invalid
            return _TrialEnd("failed", notes={"message": error.message})
        try:
            return self._train_with(trial, config)
        except _Pruned:
            end = _TrialEnd("pruned")
        except (TrainingError, ConfigError, MemoryError, RuntimeError) as error:
            end = _TrialEnd("failed", notes={"message": _failure(error)})
        remove_unfinished(self.workspace, run_key(config, self.data), trial)
        return end

    def _train_with(self, trial: Trial, config: RunConfig) -> _TrialEnd:
        unfinished = unfinished_run(self.workspace, run_key(config, self.data))
        resume = unfinished is not None and _is_of(trial, unfinished)
        with self._reporting(trial, config.train.epochs) as receive:
            result = train_on(self.data, config, self.workspace, resume=resume, emit=receive)
        manifest = result.artifact.manifest
        history = [epoch_figure(self.monitor, record) for record in manifest["history"]]
        for figure in history:  # includes epochs of a killed attempt, and of an existing run
            self.study.report(trial, figure)
        best = history[manifest["best_epoch"] - 1]
        notes = {"value": best.value, "run": result.artifact.folder.name, "own": not result.up_to_date}
        return _TrialEnd("finished", best.quality, notes)

    @contextmanager
    def _reporting(self, trial: Trial, epochs: int) -> Iterator[Emit]:
        """Yield a receiver of events that reports each epoch to the study, and prunes.

        Progress is forwarded; messages of epochs are not, because the table of trials has them. At the end the progress bar
        of an interrupted training is completed.
        """
        bar: Progress | None = None

        def receive(event: Event) -> None:
            nonlocal bar
            if isinstance(event, Progress):
                bar = event
            if isinstance(event, Progress) or "epoch" not in event.facts:
                self.emit(event)
                return
            should_prune = self.study.report(trial, epoch_figure(self.monitor, event.facts)) or self._is_over()
            if should_prune and event.facts["epoch"] < epochs:
                raise _Pruned

        try:
            yield receive
        finally:
            if bar is not None and bar.total is not None and bar.done < bar.total:
                self.emit(replace(bar, done=bar.total))

    def write(self) -> None:
        """Write the best config, the report and the manifest."""
        with self._lock():
            trials = self.study.trials()
            best = best_of(trials)
            if best is not None:
                head = f"# Trial {best.number} of recsys tune, the best of {len(trials)}: {line(best)}\n"
                write_text(self.artifact.best, head + dump(vary(self.config, best.overrides)))
            runs = {run.folder.name for run in self.workspace.runs() if run.exists}
            summary = {
                "metric": {"name": self.monitor.name, "better": self.monitor.better},
                **gather(trials, self.options, runs=runs),
            }
            write_text(self.artifact.report, show(summary, data=self.data.folder.name, config=dump(self.config)))
            manifest = {"key": study_key(self.config, self.data), "data": self.data.folder.name, **summary}
            write_manifest(self.artifact.folder, "TunedStudy", manifest)

    def check(self) -> None:
        """Check that not all trials failed."""
        trials = self.study.trials()
        if all(trial.state == "failed" for trial in trials):
            reason = trials[-1].notes.get("message")
            raise TrainingError(
                f"all {len(trials)} trials failed; the last one: {reason}",
                hint="fix the config, or start anew with recsys tune --force",
            )

    def _open(self) -> Study:
        try:
            from recsys_cli.tuning.study import Study
        except ModuleNotFoundError as error:
            raise MissingExtraError.for_extra("tune", what="recsys tune") from error
        with self._lock(), whole(self.artifact.journal, hint=self.artifact.remake):
            study = Study(self.artifact.journal, self.options, self.first)
            study.trials()
            return study

    def _lock(self) -> AbstractContextManager[None]:
        return self.workspace.lock(f"tune-{self.artifact.folder.name}", emit=self.emit)

    def _trial_lock(self, number: int) -> AbstractContextManager[None]:
        """Lock a trial as long as its process lives."""
        return self.workspace.lock(f"tune-{self.artifact.folder.name}-{number}", timeout=0)

    def _claim(self, locks: ExitStack) -> Trial | None:
        """Claim a trial of an ended process, or start a new one."""
        with self._lock():
            for trial in self.study.trials():
                if trial.state == "running" and self._take_over(trial, locks):
                    return self.study.trials()[trial.number - 1]
            if len(self.study.trials()) >= self.options.trials:
                return None
            new = self.study.ask()
            if new is None:
                return None
            locks.enter_context(self._trial_lock(new.number))
            self.study.note(new, begun=1, since=f"{datetime.now(UTC):%Y%m%dT%H%M%S}")
            return self.study.trials()[new.number - 1]

    def _take_over(self, trial: Trial, locks: ExitStack) -> bool:
        """Take over a trial of an ended process, not of a live one; a trial without attempts left fails."""
        with ExitStack() as lock:
            try:
                lock.enter_context(self._trial_lock(trial.number))
            except RecsysError:
                return False
            attempts = trial.notes.get("begun")
            if attempts is None or attempts >= _ATTEMPTS:  # None: killed while its values were sampled
                message = f"its process was killed {attempts or 1} times, possibly for lack of memory"
                self.study.end(trial, "failed", message=message)
                return False
            self.study.note(trial, begun=attempts + 1)
            locks.push(lock.pop_all())
            return True

    def _remove_other_runs(self) -> None:
        """Remove runs of this study other than the best; keep earlier runs, evaluated ones, and those that a process evaluates."""
        with self._lock():
            trials = self.study.trials()
            best = best_of(trials)
            for trial in trials:
                if trial.notes.get("own") and trial.notes.get("run") and trial != best:
                    run = TrainedRun(self.workspace.root / "runs" / trial.notes["run"])
                    with suppress(LockedError), self.workspace.lock(run_lock(run), timeout=0):
                        if run.exists and not run.evaluated().evaluation.is_file():
                            self.workspace.remove(run)

    def _report(self, number: int) -> None:
        trials = self.study.trials()
        trial, best = trials[number - 1], best_of(trials)
        message = trial.notes.get("message")
        value = "" if trial.value is None else f", {self.monitor.name} {trial.value:.4f}"
        reason = f": {message}" if message else f" after epoch {len(trial.curve)}" if trial.state == "pruned" else ""
        mark = " (best so far)" if best == trial else ""
        self.emit(Message(f"trial {number} {trial.state}{reason}{value}{mark}"))
        ended = sum(trial.state != "running" for trial in trials)
        fields = {} if best is None or best.value is None else {f"best {self.monitor.name}": f"{best.value:.4f}"}
        self.emit(Progress("tune", ended, max(ended, self.options.trials), unit="trials", fields=fields))
