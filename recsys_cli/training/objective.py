"""Objective of a training run, and its validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.errors import TrainingError
from recsys_cli.features.schema import Schema
from recsys_cli.metrics.metric import Better, PointwiseMetric
from recsys_cli.metrics.named import BINARY, REGRESSION
from recsys_cli.models.model import Model
from recsys_cli.training.ranks import Ranks

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
        """Return the objective of a `train` section, without options that the model does not use."""
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


def not_finite(message: str, split: str, columns: Sequence[str]) -> TrainingError:
    """Return the error of a loss or score that is not finite, with the columns of the split with such values."""
    if not columns:
        hint = "try a smaller train.learning_rate or train.precision=fp32"
        return TrainingError(message, hint=hint)
    names = ", ".join(columns)
    return TrainingError(
        f"{message}: {names} of {split} has nulls or infinite numbers",
        hint=f"put FillMissing or FillMedian for {names} into features.ops, before Normalize; then run recsys etl",
    )


class Validation:
    """Loss, default metric of the label and monitored metric over the valid split, batch by batch.

    Takes 8 bytes per row on the host, none on the device. Every rank receives all scores, in row order.
    """

    def __init__(self, num_rows: int, objective: Objective, ranks: Ranks) -> None:
        self._objective = objective
        self._ranks = ranks
        self._scores = np.empty(num_rows, dtype=np.float32)
        self._labels = np.empty(num_rows, dtype=np.float32)
        self._loss: float | None = None  # stays None for models without a loss per row
        self.rows = 0

    @torch.no_grad()
    def add(self, model: Model, batch: Batch) -> None:
        """Score this rank's share of a batch, with the model in evaluation mode.

        Raises:
            TrainingError: A score or the loss is not finite.
        """
        scores = model.score(batch)
        labels = batch.labels[self._objective.label]
        gathered = self._ranks.gather_rows(torch.stack([scores.float(), labels.float()], dim=1).cpu()).numpy()
        span = slice(self.rows, self.rows + len(gathered))
        if model.rows == "interactions":
            loss = float(model.loss(batch, scores=scores)) * batch.num_rows if batch.num_rows else 0.0
            self._loss = (self._loss or 0.0) + float(self._ranks.sum(torch.tensor(loss, dtype=torch.float64)))
        if not (math.isfinite(self._loss or 0.0) and np.isfinite(gathered[:, 0]).all()):
            raise not_finite(
                "a score of the valid split is not a finite number",
                "valid",
                self._ranks.union(batch.not_finite(self._objective.filled)),
            )
        self._scores[span], self._labels[span] = gathered[:, 0], gathered[:, 1]
        self.rows = span.stop

    def figures(self, model: Model) -> dict[str, float | None]:
        """Return the metrics of the rows so far by name; None for an undefined one."""
        scored = ValidationScores(model, self._scores[: self.rows], self._labels[: self.rows])
        monitor, default = self._objective.monitor, self._objective.default
        loss = math.nan if self._loss is None else self._loss / self.rows
        values = {"loss": loss, default.name: default.of_rows(scored.labels, scored.scores)}
        if monitor.measure is not None:
            values[monitor.name] = monitor.measure(scored)
        figures = {name: value if math.isfinite(value) else None for name, value in values.items()}
        return dict(self._ranks.from_first(figures))  # equal on all ranks, for equal decisions
