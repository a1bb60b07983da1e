"""A trial of a study as plain values, independent of Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from recsys_cli.config.space import assignment

State = Literal["finished", "pruned", "failed", "running"]


@dataclass(frozen=True)
class EpochFigure:
    """The monitored metric after an epoch, from 1; `quality` has the sign for higher is better."""

    epoch: int
    value: float | None
    quality: float


@dataclass(frozen=True)
class Trial:
    """A trial of a study.

    Attributes:
        number: Number of the trial, from 1.
        state: `finished`, `pruned` (stopped early), `failed` (training error) or `running`.
        changes: Sampled values by key.
        quality: Final quality, higher is better; None unless finished.
        value: Monitored metric of the best epoch.
        notes: Further facts: `run`, `seconds`, `message`, `begun`, `since`.
    """

    number: int
    state: State
    changes: Mapping[str, Any]
    quality: float | None = None
    value: float | None = None
    curve: Sequence[EpochFigure] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def overrides(self) -> list[str]:
        """Overrides of the config for this trial."""
        return [assignment(key, value) for key, value in self.changes.items()]


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the first finished trial of the highest quality; None without finished trials."""
    finished = [trial for trial in trials if trial.state == "finished" and trial.quality is not None]
    return max(finished, key=lambda trial: (trial.quality, -trial.number), default=None)
