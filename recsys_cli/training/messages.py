"""Messages and progress bars of training."""

from __future__ import annotations

from dataclasses import asdict

from recsys_cli.events import Event, Message, Progress, Unit
from recsys_cli.models.model import Model
from recsys_cli.training.data import TrainingData
from recsys_cli.training.events import EpochEnded, EpochRecord, Stepped, TrainingEvent


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
