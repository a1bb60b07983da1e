"""PLE (Tang et al., "Progressive Layered Extraction (PLE): A Novel Multi-Task Learning Model", RecSys 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.ple.config import Config
from recsys_cli.models.ranking.experts import LabelTowers, expert, mix
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers


class Extraction(nn.Module):
    """One layer: g_k(x) = softmax(W_k x_k) S_k(x) for each label k, over its own and the shared experts (eq. 1 to 5).

    The gate of the shared part, for all layers but the last, sees the experts of all labels (eq. 6 and 7).
    """

    def __init__(self, config: Config, width: int, num_labels: int, *, last: bool) -> None:
        super().__init__()
        sizes = [config.num_label_experts] * num_labels + [config.num_shared_experts]
        self.experts = nn.ModuleList(nn.ModuleList(expert(config, width) for _ in range(size)) for size in sizes)
        gates = [config.num_label_experts + config.num_shared_experts] * num_labels + [sum(sizes)] * (not last)
        self.gates = nn.ModuleList(nn.Linear(width, size, bias=False) for size in gates)

    def forward(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the next inputs of each label, and except in the last layer of the shared part; (B, D) each."""
        groups = [
            torch.stack([layers((), own) for layers in cast("nn.ModuleList", experts)], dim=1).relu()
            for experts, own in zip(self.experts, inputs, strict=True)
        ]
        visible = [torch.cat([own, groups[-1]], dim=1) for own in groups[:-1]] + [torch.cat(groups, dim=1)]
        return [mix(gate(own), seen) for gate, own, seen in zip(self.gates, inputs, visible, strict=False)]


class Model(RankingModel):
    """Layers of experts, and for each label a tower on its own output of the last layer (eq. 8)."""

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        dims = dims_of(schema.categorical, config.embedding_dim)
        self.embeddings = embed(schema.categorical, dims, sparse=sparse, placement=placement)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        number, width, last = len(self.labels), sum(dims.values()) + len(self.numeric), config.num_layers - 1
        self.layers = nn.ModuleList(
            Extraction(config, config.hidden_dims[-1] if layer else width, number, last=layer == last)
            for layer in range(config.num_layers)
        )
        self.towers = LabelTowers(config, config.tower_dims, number)

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        lookups = list(self.embeddings.lookups(batch).values())
        spread = [self.embedding_dropout(lookup.spread()) for lookup in lookups]
        features = torch.cat([*spread, numbers(batch, self.numeric)], dim=1)
        states = [features] * (len(self.labels) + 1)
        for layer in self.layers:
            states = layer(states)
        return self.towers(states), lookups
