"""What training is after: the label to learn, what its rows count, and the figure that decides which epoch is best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.label_task import BINARY, REGRESSION
from recsys_cli.metrics.metric import Better, PointwiseMetric
from recsys_cli.models.model import Model

Figures = Mapping[str, float | None]
"""Figures by name; None where one is not defined, such as the AUC of rows of one class."""


@dataclass(frozen=True)
class Scored:
    """A validation split that was scored: everything that a figure can be made of.

    Attributes:
        model: In evaluation mode.
        scores: Its logits, or of a label that is a number the numbers that it tells; shape (N,), float32.
        labels: The label of each row, shape (N,), float32.
    """

    model: Model
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Monitor:
    """The figure that decides which epoch is best, when to stop early, and what a plateau is.

    Attributes:
        name: As in the records of epochs.
        better: Which values are better.
        measure: How to get it, NaN where it is not defined; None for `loss` and the goal's `default`, which are always measured.
    """

    name: str = BINARY.default.name
    better: Better = "higher"
    measure: Callable[[Scored], float] | None = None

    def quality(self, valid: Figures) -> float | None:
        """Return how good an epoch was, more being better; None where nothing was measured.

        Where the figure is not defined the loss decides, in all epochs of a run, as it is the labels that do not define it.
        Where there is no loss either, as of models that learn from users, it is the worst there can be.
        """
        if not valid:
            return None
        value, loss = valid[self.name], valid["loss"]
        if value is None:
            return -float("inf") if loss is None else -loss
        return {"higher": value, "lower": -value, "one": -abs(value - 1)}[self.better]


@dataclass(frozen=True)
class Goal:
    """What training is after.

    Attributes:
        label: The label that the scores are for.
        monitor: Decides which epoch is best.
        positive_weight: How much a positive row counts in the loss, a negative one counting 1; None where both count 1.
        label_smoothing: Share of the labels that is replaced by 0.5.
        numbers: The labels that are numbers in units of their own.
    """

    label: str
    monitor: Monitor = Monitor()
    positive_weight: float | None = None
    label_smoothing: float = 0.0
    numbers: frozenset[str] = frozenset()

    @property
    def default(self) -> PointwiseMetric:
        """The default metric of the label's task, which is always measured."""
        return (REGRESSION if self.label in self.numbers else BINARY).default
