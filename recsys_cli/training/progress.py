"""Progress of a training run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from recsys_cli.training.events import EpochRecord
from recsys_cli.training.objective import Figures, Monitor


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
