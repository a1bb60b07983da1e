"""The kind of ranking models: an output per label of a row, from embeddings and numbers, with cross-entropy or squared error."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Schema
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.ranking.numbers import numeric_names
from recsys_cli.models.ranking.options import RankingOptions

if TYPE_CHECKING:
    from recsys_cli.models.collaborative.columns import CollaborativeColumns


class RankingModel(Model):
    """Pointwise model of rows with features: embeddings of categorical columns, lists included, and numbers as they are.

    It predicts every label; the first one is the score. Regression labels are standardized by `set_scales`, so that a model
    starts at the mean and learns at the usual rates in any unit; the scales are part of the weights.

    Args:
        options: Options of all ranking models.
        schema: The prepared columns.

    Raises:
        ConfigError: There is no label or no feature, a feature is a list of numbers, or `label_weights` names no label.
        MissingExtraError: Collaborative features are on, and scipy is missing.
    """

    row_dropout = True
    probabilistic = True
    by_content = True
    label_mean: Tensor
    label_deviation: Tensor

    def __init__(self, options: RankingOptions, schema: Schema) -> None:
        super().__init__()
        self.labels = tuple(column.name for column in schema.labels)
        if not self.labels:
            raise ConfigError(
                "the model learns a label, and the prepared data has none", hint="name one: features.label"
            )
        if unknown := [name for name in options.label_weights if name not in self.labels]:
            raise ConfigError(
                f"model.label_weights names {', '.join(unknown)}, and the labels are {', '.join(self.labels)}",
                hint="features.label names one label or several",
            )
        self.label_weights = tuple(options.label_weights.get(name, 1.0) for name in self.labels)
        self.is_regression = tuple(column.is_regression for column in schema.labels)
        if any(self.is_regression):
            self.register_buffer("label_mean", torch.zeros(len(self.labels)))
            self.register_buffer("label_deviation", torch.ones(len(self.labels)))
        if not schema.features:
            raise ConfigError("the prepared data has no feature column for the model to look at")
        self.regularization = options.regularization
        self.numeric = numeric_names(schema.features)
        self.collaborative: CollaborativeColumns | None = None
        if options.collaborative is not None:
            from recsys_cli.models.collaborative.columns import CollaborativeColumns  # needs an extra

            self.collaborative = CollaborativeColumns(options.collaborative, schema)

    @classmethod
    def input_schema(cls, config: RankingOptions, schema: Schema) -> Schema:
        """Return the prepared columns, and those of collaborative features where the config wants them."""
        if config.collaborative is None:
            return schema
        from recsys_cli.models.collaborative.columns import with_collaborative_columns  # needs an extra

        return with_collaborative_columns(schema, config.collaborative)

    def set_context(self, context: TrainingContext) -> None:
        """Fit collaborative features before training; evaluation has them from the checkpoint."""
        if self.collaborative is not None and self.training:
            self.collaborative.fit(context)

    def _completed(self, batch: Batch) -> Batch:
        """Return the batch with all columns of the model."""
        return batch if self.collaborative is None else self.collaborative(batch)

    @abstractmethod
    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return an output per label in the order of `labels`, shape (B, T), and all embedding lookups behind it.

        An output is a logit; of a regression label its value in standard deviations above the mean.
        """

    def set_scales(self, scales: Mapping[str, tuple[float, float]]) -> None:
        """Take mean and standard deviation of regression labels in train, by name; before training."""
        for place, label in enumerate(self.labels):
            if self.is_regression[place] and label in scales:
                self.label_mean[place], self.label_deviation[place] = scales[label]

    def logits(self, batch: Batch) -> Tensor:
        """Return an output per label; shape (B, T), float32."""
        return self.outputs(self._completed(batch))[0].float()

    def score(self, batch: Batch) -> Tensor:
        """Return the logit of the main label, or its value in its own unit; shape (B,)."""
        main = self.logits(batch)[:, 0]
        return self.label_mean[0] + self.label_deviation[0] * main.float() if self.is_regression[0] else main

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over rows of weight * (loss, summed over the labels, and cost of the embeddings).

        Embeddings cost nothing in evaluation mode, so that validation measures the prediction of labels only.
        """
        if self.training and self.regularization:
            logits, lookups = self.outputs(self._completed(batch))
            cost = self._cost(lookups, batch)
            return self.loss_of(logits.float(), batch) + self.regularization * cost
        if scores is None or len(self.labels) > 1:
            return self.loss_of(self.logits(batch), batch)
        main = (scores - self.label_mean[0]) / self.label_deviation[0] if self.is_regression[0] else scores
        return self.loss_of(main.unsqueeze(1), batch)

    def _cost(self, lookups: Sequence[Lookup], batch: Batch) -> Tensor:
        """Return the mean over rows of weight * squared length of the embeddings."""
        cost = torch.zeros(batch.num_rows, device=self.device)
        for lookup in lookups:
            cost = cost + lookup.squares()
        return (cost if batch.weight is None else cost * batch.weight).mean()

    def loss_of(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of given outputs, shape (B, T).

        It is the binary cross-entropy; of a regression label an eighth of the squared error in standard deviations. Its
        curvature is 1/4 like that of the cross-entropy at 0: regularization and label weights mean the same for both.
        """
        total = logits.new_zeros((), dtype=torch.float32)
        for place, (name, weight, logit) in enumerate(
            zip(self.labels, self.label_weights, logits.unbind(1), strict=True)
        ):
            label = batch.labels[name].float()
            if self.is_regression[place]:
                error = logit.float() - (label - self.label_mean[place]) / self.label_deviation[place]
                squares = error.square() if batch.weight is None else error.square() * batch.weight
                total = total + weight * squares.mean() / 8
            else:
                total = total + weight * F.binary_cross_entropy_with_logits(logit.float(), label, weight=batch.weight)
        return total
