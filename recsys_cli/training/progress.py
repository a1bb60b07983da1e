"""Progress of a training run: events and records of epochs, their messages, remarks, and the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from recsys_cli.events import Event, Message, Progress, Unit
from recsys_cli.models.model import Model
from recsys_cli.training import hardware
from recsys_cli.training.data import TrainingData
from recsys_cli.training.objective import Figures, Monitor


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


@dataclass
class TrainingProgress:
    """Finished epochs and steps, and sums over the current epoch."""

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    rows: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    waiting: float = 0.0
    history: list[EpochRecord] = field(default_factory=list)

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> TrainingProgress:
        """Rebuild progress from its `dataclasses.asdict`."""
        return cls(**{**saved, "history": [EpochRecord(**record) for record in saved["history"]]})

    @property
    def position(self) -> str:
        """The last step, for messages."""
        return f"step {self.total_steps} (epoch {self.epoch + 1})"

    def next_epoch(self, valid: Figures) -> TrainingProgress:
        """Finish the current epoch with its validation metrics; return progress at the start of the next one."""
        record = EpochRecord(
            epoch=self.epoch + 1,
            step=self.total_steps,
            rows=self.rows,
            train_loss=self.loss / max(self.rows, 1),
            valid=valid,
            seconds=self.seconds,
            waiting=self.waiting,
        )
        return TrainingProgress(epoch=record.epoch, total_steps=record.step, history=[*self.history, record])


def best_epoch(history: Sequence[EpochRecord], monitor: Monitor) -> EpochRecord | None:
    """Return the best epoch by the monitored metric, the first of ties; with an undefined metric the last epoch."""
    best, highest = None, -math.inf
    for record in history:
        quality = monitor.quality(record.valid)
        quality = -math.inf if quality is None else quality
        if quality > highest or quality == -math.inf == highest:
            best, highest = record, quality
    return best


def unit_of(model: Model) -> Unit:
    """Return the unit of the rows of a training batch."""
    return "users" if model.rows == "users" else "rows"


def event_message(event: TrainingEvent, data: TrainingData, *, epochs: int, unit: Unit) -> Event:
    """Return the progress of a step or validation batch, or the message of an epoch; `epochs` is their number in the run."""
    if isinstance(event, EpochEnded):
        return _epoch_message(event.record, epochs, best=event.best)
    if isinstance(event, Stepped):
        seconds = max(event.seconds, 1e-9)
        fields = {
            "loss": f"{event.loss:.4f}",
            f"{unit}/s": f"{event.rows / seconds:,.0f}",
            "waiting": f"{event.waiting / seconds:.0%}",
        }
        return Progress(f"train epoch {event.epoch}/{epochs}", event.rows, data.train.num_rows, unit, fields)
    total = None if data.valid is None else data.valid.num_rows
    return Progress(f"validate epoch {event.epoch}/{epochs}", event.rows, total)


def _epoch_message(record: EpochRecord, epochs: int, *, best: bool) -> Message:
    figures = [f", valid {name} {value:.4f}" for name, value in record.valid.items() if value is not None]
    mark = " (best)" if best and figures else ""
    text = f"epoch {record.epoch}/{epochs}: loss {record.train_loss:.4f}{''.join(figures)}{mark}"
    return Message(text, facts=asdict(record))


def notes(history: Sequence[EpochRecord], monitor: Monitor, *, early_stopping: bool, has_ranking: bool) -> list[str]:
    """Return remarks for the manifest of a finished run, as sentences without a period.

    `has_ranking` recommends a ranking metric in place of an undefined one.
    """
    best, name = best_epoch(history, monitor), monitor.name
    if best is None or not best.valid:
        return []
    if all(monitor.quality(record.valid) == -float("inf") for record in history):
        return [
            f"train.monitor={name} was not defined in any epoch, so the last epoch is kept; "
            f"monitor a metric of this model and data ({_defined(history[-1], has_ranking) or 'none was measured'})"
        ]
    remarks = []
    if all(record.valid[name] is None for record in history):
        remarks.append(
            f"train.monitor={name} was not defined in any epoch, so the epoch with the lowest valid loss is kept"
        )
    if best is history[-1] and len(history) > 1:
        number = len(history)
        stopping = "" if early_stopping else f" train.early_stopping={max(2, number // 4)}"
        remarks.append(
            f"the best epoch is the last of {number}: more may be better, such as train.epochs={2 * number}{stopping}"
        )
    return remarks


def _defined(record: EpochRecord, has_ranking: bool) -> str:
    names = (name for name, value in record.valid.items() if value is not None)
    others = ("ndcg@10",) if has_ranking else ()
    return ", ".join(dict.fromkeys([*others, *names]))


@dataclass(frozen=True)
class TrainingResult:
    """Result of a finished training.

    Attributes:
        best: Epoch of the `best` checkpoint.
        compiling: Seconds of compilation; None without it.
        facts: Other entries of the manifest: parameters, steps, device, precision, notes, …
    """

    history: Sequence[EpochRecord]
    best: EpochRecord | None
    compiling: float | None
    facts: Mapping[str, Any]

    def summary(self, *, monitor: str, seconds: float) -> dict[str, Any]:
        """Return the entries of the manifest; `seconds` is the duration of the last session."""
        training, rows = sum(record.seconds for record in self.history), sum(record.rows for record in self.history)
        return {
            "rows": rows,
            "epochs": len(self.history),
            "monitor": monitor,
            "best_epoch": self.best.epoch if self.best else None,
            "valid": (self.best.valid or None) if self.best else None,
            "history": [asdict(record) for record in self.history],
            "seconds": {"train": round(training, 3), "last_session": round(seconds, 3), "compiling": self.compiling},
            "rows_per_second": round(rows / max(training, 1e-9)),
            "waiting_share": round(sum(record.waiting for record in self.history) / max(training, 1e-9), 4),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "peak_memory": hardware.peak_memory(),
            **self.facts,
        }
