"""The sampler of a study: TPE without repeated trials."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial

from recsys_cli.features.hashing import mix


class Sampler(TPESampler):
    """TPE (Bergstra et al., 2011), seeded per trial, so that processes need no shared state.

    A sampled value without an untried combination is replaced by a random one with: no trial repeats an earlier one.

    Args:
        study_seed: Random seed.
        sizes: Number of values of each key; None for a continuous range.
        first: Values of the first trial.
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
        values = _values(distribution)
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


def _values(distribution: BaseDistribution) -> Sequence[Any]:
    """Return all values of a discrete distribution, as Optuna samples them."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step or 0
    number = round((high - low) / step) + 1
    return [min(low + place * step, high) for place in range(number)]
