"""A study kept by Optuna: the only file that knows it. TPE chooses values, a journal of JSON lines remembers what came of them.

Random numbers follow from the seed and the number of the trial, so that a study that was broken off and gone on with tries what
it would have tried without the break; several processes may work on one journal.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import MedianPruner, NopPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from recsys_cli.config import yaml12
from recsys_cli.config.tune import TuneConfig, Values
from recsys_cli.features.hashing import mix
from recsys_cli.tuning.trial import EpochFigure, State, Trial

_NAME = "study"
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "running",
}
_WORST = -1e300
"""Quality of what is not measured: Optuna takes no infinities."""
_DIGITS = 6


class Study:
    """The trials of a study, and which values to try next.

    Args:
        journal: File to keep them in; made where it is not there.
        config: What to search. Its number of trials may change from one opening to the next.
    """

    def __init__(self, journal: Path, config: TuneConfig) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal.parent.mkdir(parents=True, exist_ok=True)
        lock = _Lock(journal)
        _mend(journal, lock)
        self._storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))
        pruner = MedianPruner(config.pruning_trials, config.pruning_epochs)
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=_NAME,
            direction="maximize",
            load_if_exists=True,
            sampler=_Sampler(config.seed),
            pruner=pruner if config.pruning == "median" else NopPruner(),
        )
        self._space = config.space
        self._distributions = {key: _distribution(values) for key, values in config.space.items()}

    def trials(self) -> list[Trial]:
        """Return all trials in the order of their numbers."""
        return [self._trial(trial) for trial in self._study.get_trials(deepcopy=False)]

    def ask(self) -> Trial:
        """Begin another trial."""
        begun = self._study.ask(self._distributions)
        return self.trials()[begun.number]

    def report(self, trial: Trial, measured: EpochFigure) -> bool:
        """Note what was measured after an epoch; return whether the trial is so far behind that it should end."""
        live = optuna.Trial(self._study, self._id(trial))
        known = {then.epoch for then in self.trials()[trial.number - 1].curve}
        if measured.epoch not in known:
            self.note(trial, **{f"value {measured.epoch}": measured.value})
            live.report(max(measured.quality, _WORST), measured.epoch)
        return live.should_prune()

    def note(self, trial: Trial, **notes: Any) -> None:
        """Remember something about a trial."""
        for name, value in notes.items():
            self._storage.set_trial_user_attr(self._id(trial), name, value)

    def end(self, trial: Trial, state: State, *, quality: float | None = None, **notes: Any) -> None:
        """End a trial.

        Args:
            trial: A running one.
            state: How it ended.
            quality: How good it is, where it is finished.
            notes: What else to remember of it.
        """
        self.note(trial, **notes)
        reached = next(theirs for theirs, ours in _STATES.items() if ours == state)
        value = None if quality is None else max(quality, _WORST)
        self._study.tell(trial.number - 1, value, state=reached)

    def _id(self, trial: Trial) -> int:
        study = self._storage.get_study_id_from_name(_NAME)
        return self._storage.get_trial_id_from_study_id_trial_number(study, trial.number - 1)

    def _trial(self, found: FrozenTrial) -> Trial:
        notes = found.user_attrs
        return Trial(
            number=found.number + 1,
            state=_STATES[found.state],
            changes={key: _value(self._space[key], raw) for key, raw in found.params.items()},
            quality=found.value if found.state == TrialState.COMPLETE else None,
            value=notes.get("value"),
            curve=[
                EpochFigure(epoch, notes.get(f"value {epoch}"), quality)
                for epoch, quality in sorted(found.intermediate_values.items())
            ],
            notes={name: value for name, value in notes.items() if not name.startswith("value")},
        )


class _Sampler(TPESampler):
    """TPE (Bergstra et al., 2011) with random numbers of its own for each trial: no state has to be kept between processes."""

    def __init__(self, study_seed: int) -> None:
        super().__init__()
        self._study_seed = study_seed

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        super().__init__(seed=mix(self._study_seed, trial.number) % 2**32)
        super().before_trial(study, trial)


class _Lock(JournalFileOpenLock):
    """The system's lock on a file, which a killed process lets go of; Optuna's own stay, and are waited for."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._lock = FileLock(journal.with_name(f".{journal.name}.lock"))

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def _mend(journal: Path, lock: _Lock) -> None:
    """Cut off a last line that a killed process left half written: the next one would be joined to it."""
    if not journal.exists():
        return
    lock.acquire()
    try:
        content = journal.read_bytes()
        if not content.endswith(b"\n"):
            with journal.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    finally:
        lock.release()


def _distribution(values: Values) -> BaseDistribution:
    """Say in Optuna's words which values there are; choices go by their text, for it keeps no lists."""
    if values.choices is not None:
        return CategoricalDistribution([yaml12.quoted(choice) for choice in values.choices])
    low, high, step = values.low, values.high, values.step
    assert low is not None
    assert high is not None
    if step is not None:
        high = round(low + math.floor((high - low) / step + 1e-9) * step, 12)
    if values.is_whole:
        return IntDistribution(int(low), int(high), log=values.log, step=int(step or 1))
    return FloatDistribution(low, high, log=values.log, step=step)


def _value(values: Values, raw: Any) -> Any:
    """Return the value that a trial tries: no more digits of it than anyone would write."""
    if values.choices is not None:
        return yaml12.parse(raw)
    if isinstance(raw, int):
        return raw
    assert values.low is not None
    assert values.high is not None
    return min(max(float(f"{raw:.{_DIGITS}g}"), values.low), values.high)
