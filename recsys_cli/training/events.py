"""Events of the training loop, for recorders, trackers and progress bars."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_cli.training.objective import Figures


@dataclass(frozen=True)
class EpochRecord:
    """Metrics of one epoch, numbered from 1.

    Attributes:
        step: Steps since the start of training.
        train_loss: Mean training loss, each row before its own update; None for closed-form models.
        valid: Validation metrics by name: `loss`, `auc` and the monitored metric; empty without a valid split.
        seconds: Time of the training steps, including `waiting` for data.
    """

    epoch: int
    step: int
    rows: int
    train_loss: float | None
    valid: Figures
    seconds: float
    waiting: float


@dataclass(frozen=True)
class Stepped:
    """A finished training step; `step` counts from the start of training, the sums from that of the epoch.

    Attributes:
        loss: Mean loss of the epoch's rows, at the last check.
        seconds: Time of the steps, including `waiting` for data.
    """

    epoch: int
    step: int
    rows: int
    loss: float
    seconds: float
    waiting: float
    learning_rate: float


@dataclass(frozen=True)
class Validating:
    """A scored validation batch; `rows` of the valid split so far."""

    epoch: int
    rows: int


@dataclass(frozen=True)
class EpochEnded:
    """A trained and validated epoch; `best` if it is the best so far."""

    record: EpochRecord
    best: bool


TrainingEvent = Stepped | Validating | EpochEnded
