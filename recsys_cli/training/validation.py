"""Validation of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from recsys_cli.batch import Batch
from recsys_cli.errors import TrainingError
from recsys_cli.models.model import Model
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.objective import Objective, ValidationScores


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
