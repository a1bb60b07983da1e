"""One trial of a study as plain values, whatever library chose them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from recsys_cli.config.space import assignment

State = Literal["finished", "pruned", "failed", "running"]


@dataclass(frozen=True)
class EpochFigure:
    """What was measured after an epoch.

    Attributes:
        epoch: Its number, from 1.
        value: The figure by which trials are compared; None where it is not defined.
        quality: The same so that more is better.
    """

    epoch: int
    value: float | None
    quality: float


@dataclass(frozen=True)
class Trial:
    """A trial.

    Attributes:
        number: Counted from 1.
        state: `pruned` was ended early, `failed` could not be trained to its end, `running` was begun.
        changes: The values that it tries, by key.
        quality: How good it is, more being better; None before it is finished.
        value: The figure behind it, of the epoch that is kept.
        curve: What was measured after each epoch.
        notes: What else is known: `run`, `seconds`, `message`, `begun`, `since`.
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
        """What to put over the config to train as it did."""
        return [assignment(key, value) for key, value in self.changes.items()]


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the finished trial of the highest quality, the first of several; None where none is finished."""
    finished = [trial for trial in trials if trial.state == "finished" and trial.quality is not None]
    return max(finished, key=lambda trial: (trial.quality, -trial.number), default=None)
