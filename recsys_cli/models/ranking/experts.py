"""Mixtures of experts for several labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers
from recsys_cli.models.ranking.options import TowerOptions
from recsys_cli.models.ranking.tower import Tower


class ExpertModel(RankingModel):
    """A tower for each label, on its own mixture of experts over embeddings and numeric features."""

    def __init__(self, config: Any, schema: Schema, *, sparse: bool = False, placement: Placement = "device") -> None:
        super().__init__(config, schema)
        dims = dims_of(schema.categorical, config.embedding_dim)
        self.embeddings = embed(schema.categorical, dims, sparse=sparse, placement=placement)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self._add_experts(config, sum(dims.values()) + len(self.numeric))
        self.towers = nn.ModuleList(
            Tower((), config.hidden_dims[-1], (*config.tower_dims, 1), dropout=config.dropout, batch_norm=config.batch_norm)
            for _ in self.labels
        )  # fmt: skip

    @abstractmethod
    def _add_experts(self, config: Any, width: int) -> None:
        """Add the experts and their gates, over features of shape (B, width)."""

    @abstractmethod
    def mixtures(self, features: Tensor) -> Sequence[Tensor]:
        """Return the mixture of each label, (B, hidden_dims[-1]) each."""

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        lookups = list(self.embeddings.lookups(batch).values())
        spread = [self.embedding_dropout(lookup.spread()) for lookup in lookups]
        mixtures = self.mixtures(torch.cat([*spread, numbers(batch, self.numeric)], dim=1))
        return torch.cat([tower((), own) for tower, own in zip(self.towers, mixtures, strict=True)], dim=1), lookups


def expert(options: TowerOptions, width: int) -> Tower:
    """Return the dense layers of an expert over dense input, the last without activation."""
    return Tower((), width, options.hidden_dims, dropout=options.dropout, batch_norm=options.batch_norm)


def mix(gate: Tensor, experts: Tensor) -> Tensor:
    """Return the mean of experts (B, N, D) by the softmax of a gate (B, N); shape (B, D)."""
    mixed: Tensor = (gate.softmax(dim=1).unsqueeze(1) @ experts).squeeze(1)
    return mixed
