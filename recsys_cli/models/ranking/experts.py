"""Mixtures of experts."""

from __future__ import annotations

from torch import Tensor

from recsys_cli.models.ranking.options import TowerOptions
from recsys_cli.models.ranking.tower import Tower


def expert(options: TowerOptions, width: int) -> Tower:
    """Return the dense layers of an expert over dense input, the last without activation."""
    return Tower((), width, options.hidden_dims, dropout=options.dropout, batch_norm=options.batch_norm)


def mix(gate: Tensor, experts: Tensor) -> Tensor:
    """Return the mean of experts (B, N, D) by the softmax of a gate (B, N); shape (B, D)."""
    mixed: Tensor = (gate.softmax(dim=1).unsqueeze(1) @ experts).squeeze(1)
    return mixed
