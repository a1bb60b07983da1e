"""An Optuna study with a TPE sampler and a journal of JSON lines. Only this module imports Optuna.

The random numbers depend on the seed and the trial number only: a resumed study samples the same values. Several
processes may share a journal.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
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


class Sampler(TPESampler):
    """TPE (Bergstra et al., 2011), seeded per trial, so that processes need no shared state; a key of no size is continuous.

    A sampled value without an untried combination is replaced by a random one with: no trial repeats an earlier one.
    """

    def __init__(self, study_seed: int, sizes: Mapping[str, int | None], first: Mapping[str, Any]) -> None:
        super().__init__()
        self._study_seed, self._sizes, self._first = study_seed, sizes, first

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Seed the sampler by the study and the number of the trial."""
        super().__init__(seed=mix(self._study_seed, trial.number) % 2**32)
        super().before_trial(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return values of the keys that TPE samples together."""
        params: dict[str, Any] = {}
        for name, value in super().sample_relative(study, trial, search_space).items():
            params[name] = self._untried(study, trial, params, name, search_space[name], value)
        return params

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of a key that TPE samples alone."""
        if trial.number == 0:
            return self._first[param_name]
        value = super().sample_independent(study, trial, param_name, param_distribution)
        return self._untried(study, trial, trial.params, param_name, param_distribution, value)

    def _untried(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        params: Mapping[str, Any],
        name: str,
        distribution: BaseDistribution,
        sampled: Any,
    ) -> Any:
        """Return the sampled value, or a random one if all its combinations with `params` are tried."""
        if self._sizes[name] is None or not self.is_exhausted(study, {**params, name: sampled}):
            return sampled
        values = _all_values(distribution)
        rng = random.Random(mix(self._study_seed, trial.number))  # noqa: S311 - no secret
        shuffled = rng.sample(values, len(values))
        return next(value for value in shuffled if not self.is_exhausted(study, {**params, name: value}))

    def is_exhausted(self, study: optuna.Study, params: Mapping[str, Any]) -> bool:
        """Whether all combinations with these values are tried."""
        sizes = [size for key, size in self._sizes.items() if key not in params]
        if None in sizes:
            return False
        tried = [
            trial.params for trial in study.get_trials(deepcopy=False) if trial.params.keys() == self._sizes.keys()
        ]
        same = {tuple(one[key] for key in self._sizes) for one in tried if params.items() <= one.items()}
        return len(same) >= math.prod(size for size in sizes if size is not None)


def _all_values(distribution: BaseDistribution) -> Sequence[Any]:
    """Return all values of a discrete distribution, as Optuna samples them."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step or 0
    number = round((high - low) / step) + 1
    return [min(low + place * step, high) for place in range(number)]


_NAME = "study"
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "running",
}
_WORST = -1e300
"""Quality of an undefined metric: Optuna does not accept infinities."""
_DIGITS = 6


class Study:
    """A hyperparameter study: its trials and its sampler. The number of trials may differ from earlier sessions.

    Keys without a first value are not sampled in the first trial.
    """

    def __init__(self, journal: Path, config: TuneConfig, first: Mapping[str, Any]) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal.parent.mkdir(parents=True, exist_ok=True)
        lock = _Lock(journal)
        _repair(journal, lock)
        self._storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))
        sizes = {key: values.num_values for key, values in config.space.items()}
        self._first = {key: _raw(config.space[key], value) for key, value in first.items()}
        self._sampler = Sampler(config.seed, sizes, self._first)
        pruner = MedianPruner(config.pruning_trials, config.pruning_epochs or 1)
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=_NAME,
            direction="maximize",
            load_if_exists=True,
            sampler=self._sampler,
            pruner=pruner if config.pruning == "median" else NopPruner(),
        )
        self._space = config.space
        self._distributions = {key: _distribution(values) for key, values in config.space.items()}

    def trials(self) -> list[Trial]:
        """Return all trials by number."""
        return [self._trial(trial) for trial in self._study.get_trials(deepcopy=False)]

    def ask(self) -> Trial | None:
        """Start a new trial, after the first one with sampled values; return None if all combinations of values are tried."""
        keys = self._distributions.keys() if self.trials() else self._first.keys()
        if self.trials() and self._sampler.is_exhausted(self._study, {}):
            return None
        started = self._study.ask({key: self._distributions[key] for key in keys})
        return self.trials()[started.number]

    def report(self, trial: Trial, measured: EpochFigure) -> bool:
        """Record the metric of an epoch; return whether to prune the trial."""
        live = optuna.Trial(self._study, self._id(trial))
        recorded = {epoch.epoch for epoch in self.trials()[trial.number - 1].curve}
        if measured.epoch not in recorded:
            self.note(trial, **{f"value {measured.epoch}": measured.value})
            live.report(max(measured.quality, _WORST), measured.epoch)
        return live.should_prune()

    def note(self, trial: Trial, **notes: Any) -> None:
        """Save notes of a trial."""
        for name, value in notes.items():
            self._storage.set_trial_user_attr(self._id(trial), name, value)

    def end(self, trial: Trial, state: State, *, quality: float | None = None, **notes: Any) -> None:
        """End a running trial, with its quality (higher is better) if finished."""
        self.note(trial, **notes)
        optuna_state = next(optuna_state for optuna_state, own in _STATES.items() if own == state)
        value = None if quality is None else max(quality, _WORST)
        self._study.tell(trial.number - 1, value, state=optuna_state)

    def _id(self, trial: Trial) -> int:
        study = self._storage.get_study_id_from_name(_NAME)
        return self._storage.get_trial_id_from_study_id_trial_number(study, trial.number - 1)

    def _trial(self, frozen: FrozenTrial) -> Trial:
        notes = frozen.user_attrs
        return Trial(
            number=frozen.number + 1,
            state=_STATES[frozen.state],
            changes={key: _value(self._space[key], raw) for key, raw in frozen.params.items()},
            quality=frozen.value if frozen.state == TrialState.COMPLETE else None,
            value=notes.get("value"),
            curve=[
                EpochFigure(epoch, notes.get(f"value {epoch}"), quality)
                for epoch, quality in sorted(frozen.intermediate_values.items())
            ],
            notes={name: value for name, value in notes.items() if not name.startswith("value")},
        )


class _Lock(JournalFileOpenLock):
    """A lock of the operating system, released when a process is killed, unlike Optuna's lock files."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._lock = FileLock(journal.with_name(f".{journal.name}.lock"))

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def _repair(journal: Path, lock: _Lock) -> None:
    """Remove an incomplete last line of a killed process."""
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
    """Convert a search space to an Optuna distribution; choices as text, because Optuna stores no lists."""
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


def _raw(values: Values, value: Any) -> Any:
    """Return a value as Optuna stores it."""
    return value if values.choices is None else yaml12.quoted(value)


def _value(values: Values, raw: Any) -> Any:
    """Return the value of a trial; floats rounded to `_DIGITS` significant digits."""
    if values.choices is not None:
        return yaml12.parse(raw)
    if isinstance(raw, int):
        return raw
    assert values.low is not None
    assert values.high is not None
    return min(max(float(f"{raw:.{_DIGITS}g}"), values.low), values.high)
