"""MMoE (Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts", KDD 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.mmoe.config import Config
from recsys_cli.models.ranking.experts import LabelTowers, expert, mix
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers


class Model(RankingModel):
    """y_k = h_k(Σᵢ g_k(x)ᵢ f_i(x)) with g_k(x) = softmax(W_k x) for each label k, over shared experts f_i (eq. 5 to 7)."""

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        dims = dims_of(schema.categorical, config.embedding_dim)
        self.embeddings = embed(schema.categorical, dims, sparse=sparse, placement=placement)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        width, number = sum(dims.values()) + len(self.numeric), len(self.labels)
        self.experts = nn.ModuleList(expert(config, width) for _ in range(config.num_experts))
        self.gates = nn.ModuleList(nn.Linear(width, config.num_experts, bias=False) for _ in range(number))
        self.towers = LabelTowers(config, config.tower_dims, number)

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        lookups = list(self.embeddings.lookups(batch).values())
        spread = [self.embedding_dropout(lookup.spread()) for lookup in lookups]
        features = torch.cat([*spread, numbers(batch, self.numeric)], dim=1)
        experts = torch.stack([layers((), features) for layers in self.experts], dim=1).relu()
        mixed = [mix(gate(features), experts) for gate in self.gates]
        return self.towers(mixed), lookups
