"""Mixtures of experts for several labels: mmoe and ple."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.features.schema import Schema
from recsys_cli.models.configs.ranking import MMoEConfig, PLEConfig, TowerOptions
from recsys_cli.models.embedding import Lookup, embed
from recsys_cli.models.layers import Dropout
from recsys_cli.models.ranking.layers import Tower, numbers
from recsys_cli.models.ranking.model import RankingModel


class LabelTowers(nn.ModuleList):
    """A tower for each label, over its own mixture of experts."""

    def __init__(self, options: TowerOptions, tower_dims: Iterable[int], number: int) -> None:
        width, dims = options.hidden_dims[-1], (*tower_dims, 1)
        super().__init__(
            Tower((), width, dims, dropout=options.dropout, batch_norm=options.batch_norm) for _ in range(number)
        )

    def forward(self, mixtures: Iterable[Tensor]) -> Tensor:
        """Return the logits, shape (B, T), of mixtures, shape (B, D) each."""
        return torch.cat([tower((), own) for tower, own in zip(self, mixtures, strict=True)], dim=1)


def expert(options: TowerOptions, width: int) -> Tower:
    """Return the dense layers of an expert over dense input, the last without activation."""
    return Tower((), width, options.hidden_dims, dropout=options.dropout, batch_norm=options.batch_norm)


def mix(gate: Tensor, experts: Tensor) -> Tensor:
    """Return the mean of experts (B, N, D) by the softmax of a gate (B, N); shape (B, D)."""
    mixed: Tensor = (gate.softmax(dim=1).unsqueeze(1) @ experts).squeeze(1)
    return mixed


class ExpertModel(RankingModel):
    """A tower for each label, over its mixture of experts."""

    def __init__(self, config: MMoEConfig | PLEConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.embeddings = embed(schema.categorical, config.embedding_dim)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.make_experts(config, sum(self.embeddings.dims.values()) + len(self.numeric))
        self.towers = LabelTowers(config, config.tower_dims, len(self.labels))

    @abstractmethod
    def make_experts(self, config: Any, width: int) -> None:
        """Create the experts over features of a width."""

    @abstractmethod
    def mixtures(self, features: Tensor) -> list[Tensor]:
        """Return the mixture of each label, shape (B, D) each, of features, shape (B, width)."""

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        lookups = list(self.embeddings.lookups(batch).values())
        spread = [self.embedding_dropout(lookup.spread()) for lookup in lookups]
        return self.towers(self.mixtures(torch.cat([*spread, numbers(batch, self.numeric)], dim=1))), lookups


class MMoE(ExpertModel):
    """y_k = h_k(Σᵢ g_k(x)ᵢ f_i(x)) with g_k(x) = softmax(W_k x) for each label k, over shared experts f_i (eq. 5 to 7)."""

    def make_experts(self, config: MMoEConfig, width: int) -> None:
        """Create the experts and a gate for each label."""
        self.experts = nn.ModuleList(expert(config, width) for _ in range(config.num_experts))
        self.gates = nn.ModuleList(nn.Linear(width, config.num_experts, bias=False) for _ in self.labels)

    def mixtures(self, features: Tensor) -> list[Tensor]:
        """Return the mixtures of the gates."""
        experts = torch.stack([layers((), features) for layers in self.experts], dim=1).relu()
        return [mix(gate(features), experts) for gate in self.gates]


class Extraction(nn.Module):
    """One layer: g_k(x) = softmax(W_k x_k) S_k(x) for each label k, over its own and the shared experts (eq. 1 to 5).

    The gate of the shared part, for all layers but the last, sees the experts of all labels (eq. 6 and 7).
    """

    def __init__(self, config: PLEConfig, width: int, num_labels: int, *, last: bool) -> None:
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


class PLE(ExpertModel):
    """Layers of experts, and for each label a tower on its own output of the last layer (eq. 8)."""

    def make_experts(self, config: PLEConfig, width: int) -> None:
        """Create the layers."""
        number, last = len(self.labels), config.num_layers - 1
        self.layers = nn.ModuleList(
            Extraction(config, config.hidden_dims[-1] if layer else width, number, last=layer == last)
            for layer in range(config.num_layers)
        )

    def mixtures(self, features: Tensor) -> list[Tensor]:
        """Return the outputs of the last layer."""
        states = [features] * (len(self.labels) + 1)
        for layer in self.layers:
            states = layer(states)
        return states
