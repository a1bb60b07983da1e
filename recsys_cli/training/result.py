"""Result of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from recsys_cli.training import hardware
from recsys_cli.training.events import EpochRecord


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
