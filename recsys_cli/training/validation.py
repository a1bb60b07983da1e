"""Validation: the loss, the default metric of the label and the monitored metric of the model as it is."""

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


def not_finite(what: str, split: str, columns: Sequence[str]) -> TrainingError:
    """Return the error of a number that is not finite, with the columns of the batch that it comes from.

    Args:
        what: What was found.
        split: Where the batch is from.
        columns: Those of its columns that are not finite either.
    """
    if not columns:
        hint = "try a smaller train.learning_rate or train.precision=fp32"
        return TrainingError(what, hint=hint)
    names = ", ".join(columns)
    return TrainingError(
        f"{what}: {names} of {split} has nulls or infinite numbers",
        hint=f"put FillMissing or FillMedian for {names} into features.ops, before Normalize, then recsys etl",
    )


class Validation:
    """Figures of one pass, gathered batch by batch; keeps 8 bytes a row on the host and nothing on the device.

    Args:
        num_rows: Rows of the split.
        objective: Which label the scores are for, and what to measure beside the loss.
        ranks: Who else scores a piece of each batch; everyone gets to know all scores, in the order of the rows.
    """

    def __init__(self, num_rows: int, objective: Objective, ranks: Ranks) -> None:
        self._objective = objective
        self._ranks = ranks
        self._scores = np.empty(num_rows, dtype=np.float32)
        self._labels = np.empty(num_rows, dtype=np.float32)
        self._loss: float | None = None  # of a model that has none for single rows
        self.rows = 0

    @torch.no_grad()
    def add(self, model: Model, batch: Batch) -> None:
        """Score a batch; the model has to be in evaluation mode.

        Raises:
            TrainingError: A score or the loss is no finite number.
        """
        scores = model.score(batch)
        labels = batch.labels[self._objective.label]
        found = self._ranks.gather_rows(torch.stack([scores.float(), labels.float()], dim=1).cpu()).numpy()
        here = slice(self.rows, self.rows + len(found))
        if model.rows == "interactions":
            loss = float(model.loss(batch, scores=scores)) * batch.num_rows if batch.num_rows else 0.0
            self._loss = (self._loss or 0.0) + float(self._ranks.sum(torch.tensor(loss, dtype=torch.float64)))
        if not (math.isfinite(self._loss or 0.0) and np.isfinite(found[:, 0]).all()):
            raise not_finite(
                "a score of the valid split is not a finite number", "valid", self._ranks.union(batch.not_finite())
            )
        self._scores[here], self._labels[here] = found[:, 0], found[:, 1]
        self.rows = here.stop

    def figures(self, model: Model) -> dict[str, float | None]:
        """Return the figures of the rows so far, by name; None for what is not defined.

        Args:
            model: The one that scored them.
        """
        scored = ValidationScores(model, self._scores[: self.rows], self._labels[: self.rows])
        monitor = self._objective.monitor
        others = {} if monitor.measure is None else {monitor.name: monitor.measure}
        loss = math.nan if self._loss is None else self._loss / self.rows
        default = self._objective.default
        found = {"loss": loss, default.name: default.of_rows(scored.labels, scored.scores)}
        found |= {name: measure(scored) for name, measure in others.items()}
        figures = {name: value if math.isfinite(value) else None for name, value in found.items()}
        return dict(self._ranks.from_first(figures))  # what follows from them has to be the same decision everywhere
