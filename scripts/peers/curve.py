"""Quality of a model after each epoch against the processor seconds so far; all systems use it, so their curves compare."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def ndcg(lists: Mapping[int, Any], wanted: Mapping[int, int]) -> float:
    """Return the mean NDCG@10 of users with one relevant item each: 1 / log2(rank + 1), 0 outside the list."""
    gains = np.zeros(len(wanted))
    for row, (user, item) in enumerate(wanted.items()):
        places = np.flatnonzero(np.asarray(lists.get(user, ()))[:10] == item)
        if len(places):
            gains[row] = 1 / np.log2(places[0] + 2)
    return float(gains.mean())


@dataclass
class Curve:
    """Points of one training run, and the decision to end it.

    Attributes:
        wanted: The valid item of each user.
        patience: Epochs without a better NDCG@10 before the end; None for a library that stops by itself.
        limit: Processor seconds after which an epoch is the last; None for no limit.
        points: Processor seconds of the process since the start and NDCG@10 on valid, by epoch.
        ended: Why the training ended.
    """

    wanted: Mapping[int, int]
    patience: int | None = None
    limit: float | None = None
    points: list[tuple[float, float]] = field(default_factory=list)
    ended: str = "all epochs"
    _started: float = field(default_factory=time.process_time)

    @property
    def seconds(self) -> float:
        """Processor seconds so far."""
        return time.process_time() - self._started

    @property
    def best(self) -> int:
        """The epoch with the best NDCG@10, from 1; the first of equal ones."""
        return int(np.argmax([quality for _, quality in self.points])) + 1

    def add(self, lists: Mapping[int, Any], *, seconds: float | None = None) -> bool:
        """Add an epoch; return whether it is the best so far."""
        self.points.append((round(self.seconds if seconds is None else seconds, 2), round(ndcg(lists, self.wanted), 5)))
        print(len(self.points), *self.points[-1], flush=True)
        return self.best == len(self.points)

    def pause(self, started: float) -> None:
        """Leave out the processor seconds since `started`, a reading of `seconds`."""
        self._started += self.seconds - started

    def over(self) -> bool:
        """Return whether the training has to end after this epoch."""
        if self.patience is not None and len(self.points) - self.best >= self.patience:
            self.ended = f"{self.patience} epochs without a better one"
        elif self.limit is not None and self.seconds > self.limit:
            self.ended = f"limit of {self.limit:.0f} processor seconds"
        else:
            return False
        return True

    @property
    def facts(self) -> dict[str, Any]:
        """What is kept."""
        return {"points": self.points, "best": self.best, "ended": self.ended}
