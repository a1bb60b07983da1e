"""What training tells its caller, who saves, logs and draws."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_cli.training.objective import Figures


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch was like.

    Attributes:
        epoch: Its number, from 1.
        step: Steps since the start of training.
        rows: Rows that it trained on.
        train_loss: Mean loss of those rows, each at the moment it was trained on; None where there are no steps.
        valid: What was measured on the validation split, by name: `loss`, `auc` and what `train.monitor` names. None for a
            figure that is not defined, such as the AUC of rows of one class; empty where there is no such split.
        seconds: Time of its training steps, waiting included.
        waiting: The part of `seconds` that was spent waiting for data.
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
    """A step was made.

    Attributes:
        epoch: Number of the epoch, from 1.
        step: Steps since the start of training.
        rows: Rows of this epoch that were trained on.
        loss: Mean loss of those rows, as last looked at.
        seconds: Time of this epoch's steps so far, waiting included.
        waiting: The part of `seconds` that was spent waiting for data.
        learning_rate: Of this step.
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
    """A batch of the validation split was scored; `rows` of it so far."""

    epoch: int
    rows: int


@dataclass(frozen=True)
class EpochEnded:
    """An epoch is trained and validated; `best` where it is the best so far."""

    record: EpochRecord
    best: bool


TrainingEvent = Stepped | Validating | EpochEnded
