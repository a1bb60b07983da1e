"""How the learning rate changes while a model is trained: a factor for each step that follows from the step and the history alone.

Nothing of it is state: a resumed run, on any number of processes, has the rates that it would have had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


@dataclass(frozen=True)
class TrainingPosition:
    """Where training is.

    Attributes:
        step: Steps that were made before this one.
        steps_per_epoch: Steps of an epoch.
        epochs: Epochs that are planned.
        history: For each epoch that is done, how good it was; more is better.
    """

    step: int
    steps_per_epoch: int
    epochs: int
    history: Sequence[float] = ()


class _Schedule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Which one it is."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the rate rises in a straight line from nothing to its full height."""

    def factor(self, place: TrainingPosition) -> float:
        """Return by what the learning rates are multiplied in a step."""
        if place.step < self.warmup_steps:
            return (place.step + 1) / self.warmup_steps
        return self._after_warmup(place)

    def _after_warmup(self, place: TrainingPosition) -> float:  # noqa: ARG002 - the others need it
        """Return the factor of a step that comes after the warm-up."""
        return 1.0


class Constant(_Schedule):
    """The same rate throughout."""

    name: Literal["constant"] = "constant"


class Cosine(_Schedule):
    """Half a cosine from the full rate to `floor` of it at the last step: SGDR without restarts (Loshchilov and Hutter, 2017)."""

    name: Literal["cosine"] = "cosine"
    floor: float = Field(0.0, ge=0, le=1)
    """Share of the rate that is left at the end."""

    def _after_warmup(self, place: TrainingPosition) -> float:
        last = place.steps_per_epoch * place.epochs - 1
        done = min(1.0, (place.step - self.warmup_steps) / max(1, last - self.warmup_steps))
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


class StepDecay(_Schedule):
    """A fraction of the rate after every so many epochs."""

    name: Literal["step"] = "step"
    epochs: int = Field(1, ge=1)
    """Epochs between two cuts."""
    gamma: float = Field(0.1, gt=0, le=1)
    """What is left of the rate at each cut."""

    def _after_warmup(self, place: TrainingPosition) -> float:
        return self.gamma ** (place.step // max(1, place.steps_per_epoch) // self.epochs)


class Plateau(_Schedule):
    """A fraction of the rate whenever `patience` epochs have brought nothing better."""

    name: Literal["plateau"] = "plateau"
    patience: int = Field(1, ge=1)
    """Epochs without a better one before a cut."""
    gamma: float = Field(0.5, gt=0, lt=1)
    """What is left of the rate at each cut."""

    def _after_warmup(self, place: TrainingPosition) -> float:
        best, since, cuts = -math.inf, 0, 0
        for quality in place.history:
            best, since = (quality, 0) if quality > best else (best, since + 1)
            if since >= self.patience:
                since, cuts = 0, cuts + 1
        return self.gamma**cuts


def _by_name(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and value.keys() <= _Schedule.model_fields.keys():
        return {"name": "constant", **value}
    return value


Schedule = Annotated[
    Annotated[Constant | Cosine | StepDecay | Plateau, Field(discriminator="name")], BeforeValidator(_by_name)
]
"""Any of them, by its options or, with all defaults, by its name alone; a warm-up alone is one of `constant`."""
