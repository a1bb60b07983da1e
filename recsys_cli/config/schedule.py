"""Learning rate schedules: stateless functions from the training position to a factor.

A resumed run, on any number of processes, has the same rates as an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from recsys_cli.config.section import MAX_COUNT
from recsys_cli.frozen import Frozen


@dataclass(frozen=True)
class TrainingPosition:
    """Progress of a training run.

    Attributes:
        step: Number of completed steps.
        steps_per_epoch: Steps per epoch.
        epochs: Planned epochs.
        history: Quality of each completed epoch; higher is better.
    """

    step: int
    steps_per_epoch: int
    epochs: int
    history: Sequence[float] = ()


class _Schedule(Frozen):
    name: str
    """Name of the schedule."""
    warmup_steps: int = Field(0, ge=0, le=MAX_COUNT)
    """Steps of linear warm-up from 0 to the full learning rate."""

    def factor(self, position: TrainingPosition) -> float:
        """Return the factor of the learning rates in a step."""
        if position.step < self.warmup_steps:
            return (position.step + 1) / self.warmup_steps
        return self._after_warmup(position)

    def _after_warmup(self, position: TrainingPosition) -> float:  # noqa: ARG002 - subclasses need it
        """Return the factor of a step after the warm-up."""
        return 1.0


class Constant(_Schedule):
    """Constant learning rate."""

    name: Literal["constant"] = "constant"


class Cosine(_Schedule):
    """Cosine decay from the full rate to `floor` times the rate: SGDR without restarts (Loshchilov and Hutter, 2017)."""

    name: Literal["cosine"] = "cosine"
    floor: float = Field(0.0, ge=0, le=1)
    """Final learning rate, as a fraction of the full one."""

    def _after_warmup(self, position: TrainingPosition) -> float:
        last = position.steps_per_epoch * position.epochs - 1
        done = min(1.0, (position.step - self.warmup_steps) / max(1, last - self.warmup_steps))
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


class StepDecay(_Schedule):
    """Step decay: multiply the rate by `gamma` every `epochs` epochs."""

    name: Literal["step"] = "step"
    epochs: int = Field(1, ge=1, le=MAX_COUNT)
    """Epochs between two reductions."""
    gamma: float = Field(0.1, gt=0, le=1)
    """Factor of each reduction."""

    def _after_warmup(self, position: TrainingPosition) -> float:
        return self.gamma ** (position.step // max(1, position.steps_per_epoch) // self.epochs)


class Plateau(_Schedule):
    """Reduce on plateau: multiply the rate by `gamma` after `patience` epochs without improvement."""

    name: Literal["plateau"] = "plateau"
    patience: int = Field(1, ge=1, le=MAX_COUNT)
    """Epochs without improvement before a reduction."""
    gamma: float = Field(0.5, gt=0, lt=1)
    """Factor of each reduction."""

    def _after_warmup(self, position: TrainingPosition) -> float:
        best, since, reductions = -math.inf, 0, 0
        for quality in position.history:
            best, since = (quality, 0) if quality > best else (best, since + 1)
            if since >= self.patience:
                since, reductions = 0, reductions + 1
        return self.gamma**reductions


def _by_name(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and value.keys() <= _Schedule.model_fields.keys():
        return {"name": "constant", **value}
    return value


Schedule = Annotated[
    Annotated[Constant | Cosine | StepDecay | Plateau, Field(discriminator="name")], BeforeValidator(_by_name)
]
"""Any schedule, as a mapping or as a name with all defaults; a mapping of only `warmup_steps` is `constant`."""
