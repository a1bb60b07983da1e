"""`recsys tune`: trains prepared data with other values of some keys, again and again, to find which are best.

A trial is an ordinary run of the workspace. The run of the best trial is kept, so that its config is trained already; those of
the others are removed when they are over or overtaken, unless they were there before or were evaluated. What was measured stays.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from recsys_cli.config import RunConfig, TuneConfig, dump, vary
from recsys_cli.errors import ConfigError, DataError, MissingExtraError, RecsysError, TrainingError
from recsys_cli.events import Emit, Message, Progress, ignore
from recsys_cli.stages import Made
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.monitor import order_of
from recsys_cli.stages.run_selection import run_key
from recsys_cli.stages.trial import Attempt
from recsys_cli.training import hardware
from recsys_cli.tuning import facts
from recsys_cli.tuning.report import show
from recsys_cli.tuning.trial import Trial, best_of
from recsys_cli.workspace import (
    PreparedData,
    TrainedRun,
    TunedStudy,
    Workspace,
    key_of,
    whole,
    write_manifest,
    write_text,
)

if TYPE_CHECKING:
    from recsys_cli.tuning.study import Study

_ATTEMPTS = 3
"""How often a trial is begun whose process is killed: it may be the memory it takes that kills it."""


def tune(config: RunConfig, workspace: Workspace, *, force: bool = False, emit: Emit = ignore) -> Made[TunedStudy]:
    """Try values until the study has as many trials as the config asks for; go on where an earlier call stopped.

    Args:
        config: The experiment, with a `tune` section.
        workspace: Where the prepared data is, and the study and its runs go.
        force: Begin anew, without the trials that there are.
        emit: Is told how it goes.

    Raises:
        ConfigError: There is no `tune` section, or the device is not there.
        MissingExtraError: Optuna is not installed.
        MissingArtifactError: The data is not prepared.
        DataError: The data has no valid split, or a label that cannot be learnt.
        TrainingError: No trial could be finished.
        KeyboardInterrupt: It was interrupted; the next call goes on in the middle of the trial.
    """
    _wanted(config)
    return tune_on(prepared_data(config, workspace), config, workspace, force=force, emit=emit)


def tune_on(
    data: PreparedData, config: RunConfig, workspace: Workspace, *, force: bool = False, emit: Emit = ignore
) -> Made[TunedStudy]:
    """Tune on given data; see `tune`."""
    if not data.rows("valid"):
        raise DataError("the data has no valid split to compare trials by", hint="recsys etl split.valid=0.1")
    hardware.device(config.train.device)
    artifact = workspace.study(study_key(config, data))
    search = _Search(data, config, _wanted(config), workspace, artifact, emit, force=force)
    tried = 0
    while search.one():
        tried += 1
    if not search.artifact.exists:
        search.write()
    search.check()
    return Made(search.artifact, up_to_date=not tried)


def study_key(config: RunConfig, data: PreparedData) -> str:
    """Return what a study depends on: everything that decides which trials it has, but not how many."""
    return key_of("tune", run_key(config, data), _wanted(config).model_dump(mode="json", exclude={"trials"}))


def _wanted(config: RunConfig) -> TuneConfig:
    if config.tune is None:
        raise ConfigError(
            "the config has no tune section, which says what to search",
            hint="such as  tune: {space: {train.learning_rate: {low: 1e-4, high: 0.1, log: true}}}",
        )
    return config.tune


class _Search:
    """One process at work on a study; others may be at work on it as well.

    Args:
        data: What to train on.
        config: What the values of the trials are put over.
        wanted: Its `tune` section.
        workspace: Where runs go.
        artifact: Where the study is.
        emit: Is told how it goes.
        force: Begin anew, without the trials that there are.
    """

    def __init__(
        self,
        data: PreparedData,
        config: RunConfig,
        wanted: TuneConfig,
        workspace: Workspace,
        artifact: TunedStudy,
        emit: Emit,
        *,
        force: bool,
    ) -> None:
        self.data = data
        self.config = config
        self.wanted = wanted
        self.workspace = workspace
        self.artifact = artifact
        self.emit = emit
        self.monitor = order_of(config.train.monitor)
        self.study = self._begun(anew=force)

    def _begun(self, *, anew: bool) -> Study:
        """Open the study, or begin anew; one that is damaged can only be begun anew."""
        try:
            study = self._open()
        except DataError:
            if not anew:
                raise
            self.workspace.remove(self.artifact)
            return self._open()
        return self._forgotten(study) if anew else study

    def _forgotten(self, study: Study) -> Study:
        """Remove the study and open an empty one.

        Raises:
            RecsysError: Another process is at one of its trials.
        """
        with self._lock(), ExitStack() as held:
            for trial in study.trials():
                if trial.state == "running":
                    held.enter_context(self._at_work(trial.number))
            self.workspace.remove(self.artifact)
        return self._open()

    def one(self) -> bool:
        """Make a trial, or go on with one whose process is no more; return False where there is nothing left to do."""
        with ExitStack() as held:
            trial = self._claim(held)
            if trial is None:
                return False
            self.emit(Message(f"trial {trial.number} of {self.wanted.trials}: {facts.line(trial)}"))
            Attempt(self.study, trial, self.data, self.config, self.monitor, self.workspace, self.emit).make()
            self._keep_the_best()
        self.write()
        self._tell(trial.number)
        return True

    def write(self) -> None:
        """Write what is known by now: the best config, the page, the manifest."""
        with self._lock():
            trials = self.study.trials()
            best = best_of(trials)
            if best is not None:
                head = f"# Trial {best.number} of recsys tune, the best of {len(trials)}: {facts.line(best)}\n"
                write_text(self.artifact.best, head + dump(vary(self.config, best.overrides)))
            runs = {run.folder.name for run in self.workspace.runs() if run.exists}
            found = {
                "metric": {"name": self.monitor.name, "better": self.monitor.better},
                **facts.gather(trials, self.wanted, runs=runs),
            }
            write_text(self.artifact.report, show(found, data=self.data.folder.name, config=dump(self.config)))
            manifest = {"key": study_key(self.config, self.data), "data": self.data.folder.name, **found}
            write_manifest(self.artifact.folder, "TunedStudy", manifest)

    def check(self) -> None:
        """Look whether anything came of it.

        Raises:
            TrainingError: All trials failed.
        """
        trials = self.study.trials()
        if all(trial.state == "failed" for trial in trials):
            why = trials[-1].notes.get("message")
            raise TrainingError(
                f"none of {len(trials)} trials could be finished; the last one: {why}",
                hint="mend the config, or recsys tune --force to begin anew",
            )

    def _open(self) -> Study:
        try:
            from recsys_cli.tuning.study import Study
        except ModuleNotFoundError as error:
            raise MissingExtraError.for_extra("tune", what="recsys tune") from error
        with self._lock(), whole(self.artifact.journal, hint=self.artifact.remake):
            study = Study(self.artifact.journal, self.wanted)
            study.trials()
            return study

    def _lock(self) -> AbstractContextManager[None]:
        """Take turns with other processes at the same study."""
        return self.workspace.lock(f"tune-{self.artifact.folder.name}", emit=self.emit)

    def _at_work(self, number: int) -> AbstractContextManager[None]:
        """Hold what the process at a trial holds, for as long as it lives."""
        return self.workspace.lock(f"tune-{self.artifact.folder.name}-{number}", timeout=0)

    def _claim(self, held: ExitStack) -> Trial | None:
        """Take over a trial that nobody is at any more, or begin one."""
        with self._lock():
            for trial in self.study.trials():
                if trial.state == "running" and self._takes_over(trial, held):
                    return self.study.trials()[trial.number - 1]
            if len(self.study.trials()) >= self.wanted.trials:
                return None
            trial = self.study.ask()
            held.enter_context(self._at_work(trial.number))
            self.study.note(trial, begun=1, since=f"{datetime.now(UTC):%Y%m%dT%H%M%S}")
            return self.study.trials()[trial.number - 1]

    def _takes_over(self, trial: Trial, held: ExitStack) -> bool:
        with ExitStack() as taken:
            try:
                taken.enter_context(self._at_work(trial.number))
            except RecsysError:
                return False
            begun = trial.notes.get("begun")
            if begun is None or begun >= _ATTEMPTS or trial.changes.keys() != self.wanted.space.keys():
                message = f"its process ended {begun or 1} times without a word: it may need more memory than there is"
                self.study.end(trial, "failed", message=message)
                return False
            self.study.note(trial, begun=begun + 1)
            held.push(taken.pop_all())
            return True

    def _keep_the_best(self) -> None:
        """Remove the runs that a better one has overtaken, but none that was there before, or that somebody evaluated."""
        with self._lock():
            trials = self.study.trials()
            best = best_of(trials)
            for trial in trials:
                if trial.notes.get("own") and trial.notes.get("run") and trial != best:
                    run = TrainedRun(self.workspace.root / "runs" / trial.notes["run"])
                    if run.exists and not run.evaluated().evaluation.is_file():
                        self.workspace.remove(run)

    def _tell(self, number: int) -> None:
        trials = self.study.trials()
        trial, best = trials[number - 1], best_of(trials)
        message = trial.notes.get("message")
        value = "" if trial.value is None else f", {self.monitor.name} {trial.value:.4f}"
        why = f": {message}" if message else f" after epoch {len(trial.curve)}" if trial.state == "pruned" else ""
        mark = " (best so far)" if best == trial else ""
        self.emit(Message(f"trial {number} {trial.state}{why}{value}{mark}"))
        over = sum(trial.state != "running" for trial in trials)
        fields = {} if best is None or best.value is None else {f"best {self.monitor.name}": f"{best.value:.4f}"}
        self.emit(Progress("tune", over, max(over, self.wanted.trials), unit="trials", fields=fields))
