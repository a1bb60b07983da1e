"""Mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from recsys_cli.models.ranking.options import TowerOptions
from recsys_cli.models.ranking.tower import Tower


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
