"""Base of ranking models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.collaborative.features import CollaborativeColumns, with_collaborative_columns
from recsys_cli.models.configs.ranking import RankingOptions
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.ranking.history import HistoryReader, pooled_columns, without_list
from recsys_cli.models.ranking.layers import numeric_columns


class RankingModel(Model):
    """Pointwise model of rows with features: embeddings of categorical columns, lists included, and raw numeric columns.

    It predicts every label; the first one is the score. Regression labels are standardized by `set_scales`, so that a
    model starts at the mean and learns at the usual rates in any unit; the scales are part of the weights.

    Attributes:
        pools_history: Histories (`model.history`) reach `outputs` as list columns with their mean embeddings. A model that
            reads `history.window` itself sets False.

    Raises:
        ConfigError: There is no label or no feature, a feature is a list of numbers but no vector, or `label_weights` has an
            unknown label.
    """

    row_dropout = True
    probabilistic = True
    by_content = True
    placements = ("device", "host", "sharded")
    pools_history: ClassVar[bool] = True
    label_mean: Tensor
    label_deviation: Tensor

    def __init__(self, options: RankingOptions, schema: Schema) -> None:
        super().__init__()
        self.labels = tuple(column.name for column in schema.labels)
        if not self.labels:
            raise ConfigError("the model needs a label, and the prepared data has none", hint="set features.label")
        if unknown := [name for name in options.label_weights if name not in self.labels]:
            raise ConfigError(
                f"model.label_weights: unknown label {', '.join(unknown)}; the labels are {', '.join(self.labels)}",
                hint="use the names of features.label",
            )
        self.label_weights = tuple(options.label_weights.get(name, 1.0) for name in self.labels)
        self.is_regression = tuple(column.is_regression for column in schema.labels)
        if any(self.is_regression):
            self.register_buffer("label_mean", torch.zeros(len(self.labels)))
            self.register_buffer("label_deviation", torch.ones(len(self.labels)))
        if not schema.features:
            raise ConfigError("the prepared data has no feature column")
        self.regularization = options.regularization
        self.numeric = numeric_columns(schema.features)
        self.collaborative: CollaborativeColumns | None = None
        if options.collaborative is not None:
            pooled = () if options.history is None else pooled_columns(schema, options.history)
            own = schema.select(lambda column: column not in pooled)
            self.collaborative = CollaborativeColumns(options.collaborative, Schema(columns=own))
        self.history = None if options.history is None else HistoryReader(options.history, schema)
        self.timestamp = None if self.history is None else self.history.time

    @classmethod
    def input_schema(cls, config: RankingOptions, schema: Schema) -> Schema:
        """Return the prepared columns, plus those of histories and collaborative features, if any."""
        pooled: tuple[Column, ...] = ()
        if config.history is not None:
            schema = without_list(schema, config.history)
            pooled = pooled_columns(schema, config.history) if cls.pools_history else ()
        if config.collaborative is not None:
            schema = with_collaborative_columns(schema, config.collaborative)
        return Schema(columns=(*schema.columns, *pooled))

    def set_context(self, context: TrainingContext) -> None:
        """Read the histories, and fit collaborative features before training; in evaluation they come from the checkpoint."""
        if self.history is not None:
            self.history.set_context(context, self.device)
        if self.collaborative is not None and self.training:
            self.collaborative.fit(context)

    def set_earlier_rows(self, interactions: Interactions) -> None:
        """Read the histories of held-out rows."""
        if self.history is not None:
            self.history.set_earlier_rows(interactions, self.device)

    def _with_columns(self, batch: Batch) -> Batch:
        """Return the batch with pooled histories and collaborative features, if any."""
        if self.history is not None and self.pools_history:
            batch = self.history.pooled(batch, training=self.training)
        return batch if self.collaborative is None else self.collaborative(batch)

    @abstractmethod
    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return one output per label in the order of `labels`, shape (B, T), and all its embedding lookups.

        An output is a logit, or for a regression label its standardized value.
        """

    def set_scales(self, scales: Mapping[str, tuple[float, float]]) -> None:
        """Set mean and standard deviation of the regression labels in train."""
        for index, label in enumerate(self.labels):
            if self.is_regression[index] and label in scales:
                self.label_mean[index], self.label_deviation[index] = scales[label]

    def logits(self, batch: Batch) -> Tensor:
        """Return one output per label; shape (B, T), float32."""
        return self.outputs(self._with_columns(batch))[0].float()

    def score(self, batch: Batch) -> Tensor:
        """Return the logit of the main label, or its value in the label's unit; shape (B,)."""
        main = self.logits(batch)[:, 0]
        return self.label_mean[0] + self.label_deviation[0] * main.float() if self.is_regression[0] else main

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over rows of weight * (loss summed over labels + L2 penalty of the embeddings).

        The penalty applies in training mode only, so that validation measures the prediction of labels.
        """
        if self.training and self.regularization:
            logits, lookups = self.outputs(self._with_columns(batch))
            penalty = self._penalty(lookups, batch)
            return self.loss_of(logits.float(), batch) + self.regularization * penalty
        if scores is None or len(self.labels) > 1:
            return self.loss_of(self.logits(batch), batch)
        main = (scores - self.label_mean[0]) / self.label_deviation[0] if self.is_regression[0] else scores
        return self.loss_of(main.unsqueeze(1), batch)

    def _penalty(self, lookups: Sequence[Lookup], batch: Batch) -> Tensor:
        """Return the mean over rows of weight * squared norm of the embeddings."""
        penalty = torch.zeros(batch.num_rows, device=self.device)
        for lookup in lookups:
            penalty = penalty + lookup.squares()
        return (penalty if batch.weight is None else penalty * batch.weight).mean()

    def loss_of(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of given outputs, shape (B, T).

        Binary cross-entropy; for a regression label one eighth of the squared error in standard deviations. Its curvature of
        1/4 equals that of the cross-entropy at 0: regularization and label weights have the same scale for both.
        """
        total = logits.new_zeros((), dtype=torch.float32)
        for index, (name, weight, logit) in enumerate(
            zip(self.labels, self.label_weights, logits.unbind(1), strict=True)
        ):
            label = batch.labels[name].float()
            if self.is_regression[index]:
                error = logit.float() - (label - self.label_mean[index]) / self.label_deviation[index]
                squares = error.square() if batch.weight is None else error.square() * batch.weight
                total = total + weight * squares.mean() / 8
            else:
                total = total + weight * F.binary_cross_entropy_with_logits(logit.float(), label, weight=batch.weight)
        return total
