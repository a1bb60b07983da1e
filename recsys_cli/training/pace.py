"""Pace of training: seconds per step and per validation, measured on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recsys_cli.training import hardware
from recsys_cli.training.events import EpochEnded, Stepped, TrainingEvent, Validating
from recsys_cli.training.trainer import Trainer

_WARM_UP = 3
"""Steps before the measurement, for memory allocation and kernel compilation."""
_SECONDS = 5.0
"""Time limit of the measured steps, and of the measured validation."""


@dataclass(frozen=True)
class Pace:
    """Expected time of training.

    Attributes:
        steps: Steps per epoch.
        step_seconds: Mean seconds per measured step.
        valid_seconds: Seconds of the validation after an epoch.
        epochs: Fewest and most epochs, see `TrainConfig.num_epochs`.
    """

    steps: int
    step_seconds: float
    valid_seconds: float
    epochs: tuple[int, int]

    @property
    def epoch_seconds(self) -> float:
        """Seconds of an epoch with its validation."""
        return self.steps * self.step_seconds + self.valid_seconds


def measure_pace(trainer: Trainer) -> Pace:
    """Train some steps and validate once; the trainer is new, and not usable afterwards."""
    events = trainer.events()
    num_steps, config = len(trainer.data.train), trainer.config
    step_seconds = _step_seconds(trainer, events)
    trainer.progress.step = num_steps  # the end of the epoch
    epochs = config.num_epochs(has_valid=trainer.data.valid is not None)
    return Pace(num_steps, step_seconds, _valid_seconds(trainer, trainer.events()), epochs)


def _step_seconds(trainer: Trainer, events: Iterator[TrainingEvent]) -> float:
    done, start = 0, hardware.now(trainer.device)
    for event in events:
        if not isinstance(event, Stepped):
            break
        done += 1
        if done == _WARM_UP < len(trainer.data.train):
            start = hardware.now(trainer.device)
        elif hardware.now(trainer.device) - start > _SECONDS:
            break
    skipped = _WARM_UP if done > _WARM_UP else 0
    return (hardware.now(trainer.device) - start) / (done - skipped)


def _valid_seconds(trainer: Trainer, events: Iterator[TrainingEvent]) -> float:
    """Return the seconds of a validation; a long one is measured in part, without rankings."""
    start = hardware.now(trainer.device)
    for event in events:
        if isinstance(event, EpochEnded):
            break
        seconds = hardware.now(trainer.device) - start
        if isinstance(event, Validating) and seconds > _SECONDS and trainer.data.valid is not None:
            return seconds * trainer.data.valid.num_rows / event.rows
    return hardware.now(trainer.device) - start
