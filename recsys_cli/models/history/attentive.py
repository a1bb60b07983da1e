"""Base of ranking models with attention to the history."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.history.events import EventEmbeddings
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers
from recsys_cli.models.ranking.tower import Tower


class AttentiveModel(RankingModel):
    """An MLP over embeddings, numeric features and a summary of the history by attention to the target."""

    pools_history = False

    def __init__(self, config: Any, schema: Schema, *, sparse: bool = False, placement: Placement = "device") -> None:
        super().__init__(config, schema)
        assert self.history is not None
        dims = dims_of(schema.categorical, config.embedding_dim)
        self.embeddings = embed(schema.categorical, dims, sparse=sparse, placement=placement)
        self.events = EventEmbeddings(self.history, self.embeddings)
        self.attention, width = self.attention_of(config, self.events.dim)
        self.tower = Tower.of(config, self.embeddings.dims, len(self.numeric) + width, len(self.labels))

    @staticmethod
    @abstractmethod
    def attention_of(config: Any, dim: int) -> tuple[nn.Module, int]:
        """Return the module from `Events` of width `dim` to a summary, shape (B, W), and W."""

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        events, lookups = self.events(batch, training=self.training)
        summary = events.map(self.attention)
        return self.tower(lookups, torch.cat([numbers(batch, self.numeric), summary], dim=1)), lookups
