"""Objective of a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.features.schema import Schema
from recsys_cli.metrics.metric import Better, PointwiseMetric
from recsys_cli.metrics.named import BINARY, REGRESSION
from recsys_cli.models.model import Model

Figures = Mapping[str, float | None]
"""Metric values by name; None for an undefined one, such as the AUC of rows of one class."""


@dataclass(frozen=True)
class ValidationScores:
    """Scores and labels of the valid split, float32, shape (N,) each: logits, or predictions of a numeric label."""

    model: Model
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Monitor:
    """Monitored metric: selects the best epoch and drives early stopping and plateau schedules.

    Attributes:
        measure: The metric, NaN if undefined; None for `loss` and the label's default metric, part of every validation.
    """

    name: str = BINARY.default.name
    better: Better = "higher"
    measure: Callable[[ValidationScores], float] | None = None

    def quality(self, valid: Figures) -> float | None:
        """Return the quality of an epoch, higher is better; None without a valid split.

        An undefined metric falls back to the loss; because the labels leave it undefined, in all epochs of a run.
        Without a loss, as for models trained on users, the quality is -inf.
        """
        if not valid:
            return None
        value, loss = valid[self.name], valid["loss"]
        if value is None:
            return -float("inf") if loss is None else -loss
        return {"higher": value, "lower": -value, "one": -abs(value - 1)}[self.better]


MONITOR = Monitor()
"""The default metric of binary labels."""


@dataclass(frozen=True)
class Objective:
    """Label, loss options and monitored metric of a training run.

    Attributes:
        positive_weight: Weight of a positive row in the loss, relative to a negative one; None for equal weights.
        label_smoothing: Smoothing s: share of each label replaced by 0.5.
        numbers: Numeric labels.
        filled: Features with 0 for a missing number; see `Column.is_filled`.
    """

    label: str
    monitor: Monitor = MONITOR
    positive_weight: float | None = None
    label_smoothing: float = 0.0
    numbers: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        model: Model,
        schema: Schema,
        config: TrainConfig,
        *,
        balance: Callable[[], float],
        monitor: Monitor = MONITOR,
    ) -> Self:
        """Return the objective of a `train` section, without options that the model does not use.

        Args:
            model: The model to train.
            schema: Its columns.
            config: The `train` section.
            balance: Returns the number of negatives per positive, for `positive_weight=balanced`.
            monitor: The monitored metric.
        """
        unused = model.unused_options(config, schema)
        weight = None if "train.positive_weight" in unused else config.positive_weight
        return cls(
            label=schema.label.name,
            monitor=monitor,
            positive_weight=balance() if weight == "balanced" else weight,
            label_smoothing=0.0 if "train.label_smoothing" in unused else config.label_smoothing,
            numbers=frozenset(column.name for column in schema.labels if column.is_regression),
            filled=frozenset(column.name for column in schema.features if column.is_filled),
        )

    @property
    def default(self) -> PointwiseMetric:
        """The default metric of the label's task."""
        return (REGRESSION if self.label in self.numbers else BINARY).default


def apply_label_smoothing(batch: Batch, objective: Objective) -> Batch:
    """Weight the positive rows and smooth the labels of a training batch; validation uses the original ones.

    The positive weight multiplies the row's own weight, in proportion to a label between 0 and 1. Smoothing maps y to
    (1 - s) y + s / 2 (Szegedy et al., "Rethinking the Inception architecture", 2016, for two classes), except for
    numeric labels.
    """
    weight, labels = batch.weight, batch.labels
    if objective.positive_weight is not None:
        counts = 1 + (objective.positive_weight - 1) * labels[objective.label]
        weight = counts if weight is None else weight * counts
    if objective.label_smoothing:
        keep = 1 - objective.label_smoothing
        labels = {
            name: label if name in objective.numbers else label * keep + objective.label_smoothing / 2
            for name, label in labels.items()
        }
    return replace(batch, labels=labels, weight=weight)
