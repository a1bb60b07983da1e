"""The validation split under the model as it is: the loss that training minimises, and the AUC beside it."""

from __future__ import annotations

import math

import numpy as np
import torch

from recsys_cli.batch import Batch
from recsys_cli.metrics import auc
from recsys_cli.models.model import Model


class Validation:
    """Mean loss and exact AUC, gathered batch by batch; keeps 5 bytes a row on the host and nothing on the device.

    Args:
        num_rows: Rows of the split.
        label: Name of the label that the scores are for.
    """

    def __init__(self, num_rows: int, label: str) -> None:
        self._label = label
        self._scores = np.empty(num_rows, dtype=np.float32)
        self._positive = np.empty(num_rows, dtype=np.bool_)
        self._loss = 0.0
        self.rows = 0

    @torch.no_grad()
    def add(self, model: Model, batch: Batch) -> None:
        """Score a batch; the model has to be in evaluation mode."""
        scores = model.score(batch)
        here = slice(self.rows, self.rows + batch.num_rows)
        self._loss += float(model.loss(batch, scores=scores)) * batch.num_rows
        self._scores[here] = scores.float().cpu().numpy()
        self._positive[here] = (batch.labels[self._label] > 0.5).cpu().numpy()
        self.rows = here.stop

    @property
    def loss(self) -> float:
        """Mean loss of the rows so far."""
        return self._loss / self.rows

    @property
    def auc(self) -> float | None:
        """AUC of the rows so far; None where they are of one class, or a score is not a number."""
        area = auc(self._positive[: self.rows], self._scores[: self.rows])
        return None if math.isnan(area) or not np.isfinite(self._loss) else area
