"""What ranking models share: one logit for each label of a row, and binary cross-entropy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Schema
from recsys_cli.models.model import Trained


class Pointwise(Trained):
    """A model that tells for a row how likely each of its labels is; the first label is the one that is scored by.

    Args:
        schema: Has at least one label.
        label_weights: How much each label's loss counts, by name; 1 where it is not named.

    Raises:
        ConfigError: There is no label, or `label_weights` names what is none.
    """

    probabilistic = True

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

    @abstractmethod
    def logits(self, batch: Batch) -> Tensor:
        """Return a logit for each label in the order of `labels`, shape (B, T), float32."""

    def score(self, batch: Batch) -> Tensor:
        """Return the main label's logit; shape (B,)."""
        return self.logits(batch)[:, 0]

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over rows of weight * binary cross-entropy, summed over the labels; a float32 scalar."""
        alone = scores is not None and len(self.labels) == 1
        return self.cross_entropy(scores.unsqueeze(1) if alone and scores is not None else self.logits(batch), batch)

    def cross_entropy(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of given logits, shape (B, T)."""
        losses = [
            weight * F.binary_cross_entropy_with_logits(logit.float(), batch.labels[label].float(), weight=batch.weight)
            for label, weight, logit in zip(self.labels, self.label_weights, logits.unbind(1), strict=True)
        ]
        total = losses[0]
        for loss in losses[1:]:
            total = total + loss
        return total
