"""The `tune` section: which keys of `model` and `train` are searched, over which values, and how long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from recsys_cli.config.section import Section

Where = tuple[str | int, ...]


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"has to be a number, not {value!r}")
    return value


Number = Annotated[int | float, BeforeValidator(_number)]


_MAX_STEPS = 1_000_000


class Values(Section):
    """The values that one key may take: a range, or a list of choices."""

    low: Number | None = None
    """Least value of a range. Where low, high and step are written as whole numbers, only whole numbers are tried."""
    high: Number | None = None
    """Greatest value of the range."""
    log: bool = False
    """Whether 0.001 to 0.01 is as far as 0.01 to 0.1, as it is for learning rates."""
    step: Number | None = None
    """Try only low, low + step, low + 2 step, and so on."""
    choices: tuple[Any, ...] | None = Field(None, min_length=1)
    """The values, instead of a range: of any type that the key has."""

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Values:
        if self.choices is not None:
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
        """Whether it is a range of whole numbers."""
        return all(isinstance(end, int) for end in (self.low, self.high, self.step or 0))

    @property
    def examples(self) -> Mapping[Where, Any]:
        """Values that have to be good ones, each with where it is written: all choices, or the ends and one between."""
        if self.choices is not None:
            return {("choices", place): choice for place, choice in enumerate(self.choices)}
        assert self.low is not None
        assert self.high is not None
        between = self.low + (self.step if self.step is not None else (self.high - self.low) * 0.618)
        return {("low",): self.low, ("high",): self.high, (): math.floor(between) if self.is_whole else between}


class TuneConfig(Section):
    """How good values are searched: each trial is a training run with other values of the keys in `space`."""

    space: dict[str, Values] = Field(min_length=1)
    """The keys to search, such as `train.learning_rate` or `model.hidden_dims`, each with the values that it may take."""
    trials: int = Field(20, ge=1)
    """How many trials the study has in all; more can be added later."""
    seed: int = Field(42, ge=0)
    """Decides which values are tried."""
    pruning: Literal["median", "none"] = "median"
    """`median` ends a trial early that is behind the median of the finished ones at the same epoch; `none` ends none."""
    pruning_trials: int = Field(5, ge=1)
    """Trials that have to be finished before any is ended early."""
    pruning_epochs: int = Field(1, ge=1)
    """Epochs that every trial is given."""
