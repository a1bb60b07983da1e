"""What ranking models share: one output for each label of a row, and the loss of it: cross-entropy, or the squared error."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Schema
from recsys_cli.models.model import Trained


class Pointwise(Trained):
    """A model that tells for a row how likely each of its labels is; the first label is the one that is scored by.

    Of a label that is a number it tells the number. Inside it is standardised by `set_scales`, so that a model starts at the
    mean and learns at the usual rates, whatever the units; the scales are kept with the weights.

    Args:
        schema: Has at least one label.
        label_weights: How much each label's loss counts, by name; 1 where it is not named.

    Raises:
        ConfigError: There is no label, or `label_weights` names what is none.
    """

    probabilistic = True
    by_content = True
    label_mean: Tensor
    label_deviation: Tensor

    def __init__(self, schema: Schema, label_weights: Mapping[str, float]) -> None:
        super().__init__()
        self.labels = tuple(column.name for column in schema.labels)
        if not self.labels:
            raise ConfigError(
                "the model learns a label, and the prepared data has none", hint="name one: features.label"
            )
        if unknown := [name for name in label_weights if name not in self.labels]:
            raise ConfigError(
                f"model.label_weights names {', '.join(unknown)}, and the labels are {', '.join(self.labels)}",
                hint="features.label names one label or several",
            )
        self.label_weights = tuple(label_weights.get(name, 1.0) for name in self.labels)
        self.is_regression = tuple(column.is_regression for column in schema.labels)
        if any(self.is_regression):
            self.register_buffer("label_mean", torch.zeros(len(self.labels)))
            self.register_buffer("label_deviation", torch.ones(len(self.labels)))

    def set_scales(self, scales: Mapping[str, tuple[float, float]]) -> None:
        """Take in the mean and the standard deviation of labels that are numbers, by name; called before training.

        Args:
            scales: As train has them.
        """
        for place, label in enumerate(self.labels):
            if self.is_regression[place] and label in scales:
                self.label_mean[place], self.label_deviation[place] = scales[label]

    @abstractmethod
    def logits(self, batch: Batch) -> Tensor:
        """Return an output for each label in the order of `labels`, shape (B, T), float32.

        It is a logit; or of a number, how many standard deviations it is above the mean.
        """

    def score(self, batch: Batch) -> Tensor:
        """Return the main label's logit, or the number in its own units; shape (B,)."""
        main = self.logits(batch)[:, 0]
        return self.label_mean[0] + self.label_deviation[0] * main.float() if self.is_regression[0] else main

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over rows of weight * loss, summed over the labels; a float32 scalar."""
        if scores is None or len(self.labels) > 1:
            return self.loss_of(self.logits(batch), batch)
        main = (scores - self.label_mean[0]) / self.label_deviation[0] if self.is_regression[0] else scores
        return self.loss_of(main.unsqueeze(1), batch)

    def loss_of(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of given outputs, shape (B, T).

        It is the binary cross-entropy; or of a number, an eighth of the squared error in standard deviations. Its curvature is
        1/4, as is that of the cross-entropy at 0: what embeddings cost and labels weigh means the same of both.
        """
        total = logits.new_zeros((), dtype=torch.float32)
        for place, (label, weight, logit) in enumerate(
            zip(self.labels, self.label_weights, logits.unbind(1), strict=True)
        ):
            told = batch.labels[label].float()
            if self.is_regression[place]:
                error = logit.float() - (told - self.label_mean[place]) / self.label_deviation[place]
                squares = error.square() if batch.weight is None else error.square() * batch.weight
                total = total + weight * squares.mean() / 8
            else:
                total = total + weight * F.binary_cross_entropy_with_logits(logit.float(), told, weight=batch.weight)
        return total
