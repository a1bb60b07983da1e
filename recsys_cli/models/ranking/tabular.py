"""Ranking models over tables of embeddings and numbers: which columns they look at, and what the embeddings cost."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Schema
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.ranking.numbers import numeric_names
from recsys_cli.models.ranking.options import RankingOptions
from recsys_cli.models.ranking.pointwise import Pointwise


class Tabular(Pointwise):
    """A ranking model that looks up embeddings of categorical columns, lists of them included, and takes numbers as they are.

    Args:
        options: Those that all of them share.
        schema: The prepared columns.

    Raises:
        ConfigError: There is no label, no feature, or a list of numbers.
    """

    def __init__(self, options: RankingOptions, schema: Schema) -> None:
        super().__init__(schema, options.label_weights)
        if not schema.features:
            raise ConfigError("the prepared data has no feature column for the model to look at")
        self.regularization = options.regularization
        self.numeric = numeric_names(schema.features)

    @abstractmethod
    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return a logit for each label, shape (B, T), and all that was looked up for them."""

    def logits(self, batch: Batch) -> Tensor:
        """Return a logit for each label; shape (B, T), float32."""
        return self.outputs(batch)[0].float()

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over rows of weight * (loss, summed over the labels, and cost of the embeddings).

        In evaluation mode embeddings cost nothing, so that validation tells how well labels are predicted.
        """
        if not (self.training and self.regularization):
            return super().loss(batch, scores=scores)
        logits, lookups = self.outputs(batch)
        cost = torch.zeros(batch.num_rows, device=self.device)
        for lookup in lookups:
            cost = cost + lookup.squares()
        if batch.weight is not None:
            cost = cost * batch.weight
        return self.loss_of(logits.float(), batch) + self.regularization * cost.mean()
