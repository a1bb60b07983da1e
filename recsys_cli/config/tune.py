"""The `tune` section: search space, number of trials and pruning of a hyperparameter search, and the check of its values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from recsys_cli.config import yaml12
from recsys_cli.config.document import Check, Document, override
from recsys_cli.config.section import MAX_COUNT, MAX_SEED, Section
from recsys_cli.config.train import TrainConfig
from recsys_cli.errors import ConfigError
from recsys_cli.registry import suggest

Where = tuple[str | int, ...]


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"has to be a number, not {value!r}")
    return value


Number = Annotated[int | float, BeforeValidator(_number)]


_MAX_STEPS = 1_000_000
_MOST = 500
"""Maximum number of validated values; each takes the validation of a whole config."""


class Values(Section):
    """Search space of one key: a range, or a list of choices."""

    low: Number | None = None
    """Lower bound of a range, inclusive. If low, high and step are integers, only integers are sampled."""
    high: Number | None = None
    """Upper bound of the range, inclusive."""
    log: bool = False
    """Sample on a logarithmic scale, as usual for learning rates."""
    step: Number | None = None
    """Step of a discrete range: low, low + step, low + 2 step, and so on."""
    choices: tuple[Any, ...] | None = Field(None, min_length=1)
    """Categorical values instead of a range, of any type that the key accepts."""

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Values:
        if self.choices is not None:
            if len({yaml12.quoted(choice) for choice in self.choices}) < len(self.choices):
                raise ValueError("has a choice twice")
            if (self.low, self.high, self.step, self.log) != (None, None, None, False):
                raise ValueError("has to be a range (low, high) or choices, not both")
            return self
        if self.low is None or self.high is None:
            raise ValueError("needs low and high, or choices")
        if self.low >= self.high:
            raise ValueError(f"low has to be less than high, and {self.low:g} is not less than {self.high:g}")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            raise ValueError(f"step has to be more than 0 and at most high - low, not {self.step:g}")
        if self.step is not None and (self.high - self.low) / self.step > _MAX_STEPS:
            raise ValueError(
                f"step {self.step:g} makes more than {_MAX_STEPS:,} values; leave it out for a range without steps"
            )
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError("log needs a low above 0, and no step")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether the range is one of integers."""
        return all(isinstance(end, int) for end in (self.low, self.high, self.step or 0))

    @property
    def num_values(self) -> int | None:
        """Number of values; None for a range of floats."""
        if self.choices is not None:
            return len(self.choices)
        assert self.low is not None
        assert self.high is not None
        if self.step is None and not self.is_whole:
            return None
        return math.floor((self.high - self.low) / (self.step or 1) + 1e-9) + 1

    def holds(self, value: Any) -> bool:
        """Return whether a value is one of this space."""
        if self.choices is not None:
            return yaml12.quoted(value) in {yaml12.quoted(choice) for choice in self.choices}
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else int | float):
            return False
        assert self.low is not None
        assert self.high is not None
        steps = (value - self.low) / self.step if self.step else 0
        return self.low <= value <= self.high and math.isclose(steps, round(steps), abs_tol=1e-9)

    @property
    def examples(self) -> Mapping[Where, Any]:
        """Values to validate, by key path: all choices, or both bounds and one value between them."""
        if self.choices is not None:
            return {("choices", index): choice for index, choice in enumerate(self.choices)}
        assert self.low is not None
        assert self.high is not None
        between = self.low + (self.step if self.step is not None else (self.high - self.low) * 0.618)
        return {("low",): self.low, ("high",): self.high, (): math.floor(between) if self.is_whole else between}


class TuneConfig(Section):
    """Hyperparameter search: a trial is a training run with values of the keys in `space`: the config's own, then sampled ones."""

    space: dict[str, Values] = Field(default_factory=dict)
    """Search space: keys such as `train.learning_rate` or `model.hidden_dims`, each with a range or choices. Empty: the default
    space of the model."""
    trials: int = Field(20, ge=1, le=MAX_COUNT)
    """Total number of trials of the study, up to the number of combinations of values; can be raised later."""
    minutes: float | None = Field(None, gt=0)
    """Time limit of a call: then no trial starts, and one in training ends with its epoch once another is finished. The next call
    continues. None: no limit."""
    seed: int = Field(42, ge=0, le=MAX_SEED)
    """Random seed of the sampler."""
    pruning: Literal["median", "none"] = "median"
    """`median` prunes a trial below the median of the finished trials at the same epoch; `none` prunes no trial."""
    pruning_trials: int = Field(5, ge=1, le=MAX_COUNT)
    """Finished trials before pruning starts."""
    pruning_epochs: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Epochs of a trial before it can be pruned. None: a quarter of `train.epochs`, as slow starters often win."""

    @property
    def combinations(self) -> int | None:
        """Number of combinations of values; None with a range of floats."""
        numbers = [values.num_values for values in self.space.values()]
        return None if None in numbers else math.prod(number for number in numbers if number is not None)


def assignment(key: str, value: object) -> str:
    """Return the override `key=value`."""
    return f"{key}={yaml12.quoted(value)}"


def space_problems(document: Document, check: Check) -> list[str]:
    """Return one line for each unknown key and each invalid value of the search space, so that no trial fails on them.

    Values are validated one by one, at their own keys; an invalid combination fails in its trial.

    Malformed entries are skipped: the validation of the section reports them.
    """
    tune = document.values.get("tune")
    space = tune.get("space") if isinstance(tune, dict) else None
    problems: list[str] = []
    remaining = _MOST
    for key, entry in space.items() if isinstance(space, dict) else ():
        with suppress(ValidationError):
            values = Values.model_validate(entry)
            if (remaining := remaining - len(values.examples)) < 0:
                marker = _marker(document.location(("tune", "space", key)))
                return [
                    *problems,
                    f"{marker}{key}: the space has more than {_MOST} values to check; write ranges for long lists",
                ]
            problems += _problems_of(document, key, values, check)
    return problems


def _problems_of(document: Document, key: str, values: Values, check: Check) -> list[str]:
    here = ("tune", "space", key)
    if key.partition(".")[0] not in {"model", "train"} or "." not in key:
        near = suggest(key, [f"train.{name}" for name in TrainConfig.model_fields])
        return [f"{_marker(document.location(here))}{key}: only keys of model and train can be searched{near}"]
    if key == "train.monitor":
        return [f"{_marker(document.location(here))}{key}: compares the trials and has to be the same for all"]
    problems: dict[str, None] = {}
    for inner, value in values.examples.items():
        marker = _marker(document.location((*here, *inner)))
        changed = Document(deepcopy(document.values), dict(document.locations))
        changed.values.pop("tune")
        try:
            override(changed, [assignment(key, value)], location=marker.removesuffix(": "))
        except ConfigError as error:
            return [f"{marker}{key}: {error.message}"]
        # Only problems at this key: other problems of the config are reported elsewhere.
        problems |= dict.fromkeys(problem for problem in check(changed) if problem.startswith(f"{marker}{key}"))
        if problems and values.choices is None:
            break  # one message per range is enough
    return list(problems)


def _marker(location: str) -> str:
    return f"{location + ': ' if location else ''}tune.space: "
