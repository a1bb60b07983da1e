"""HSTU."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.hstu.config import Config
from recsys_cli.models.sequence.jagged import Jagged
from recsys_cli.models.sequence.model import SequenceModel
from recsys_cli.models.sequence.transformer import Encoder, init_small

_BUCKETS, _BASE = 128, 1.35
"""Logarithmic buckets of time: 128 of a third more each hold all times from 1 to 10^16 units, whatever the unit is."""


class Model(SequenceModel):
    """HSTU: causal pointwise attention with a gate; the state at each item predicts the next one.

    Zhai et al., "Actions speak louder than words: trillion-parameter sequential transducers for generative
    recommendations" (2024), eqs. 1 to 3, with the sampled softmax of the other sequence models. The time of an item is
    its own; the published code takes the next one's, unknown in scoring.
    """

    config: Config
    reads_times = True

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema, sparse=sparse, placement=placement)
        self.network = Encoder(config, (Block(config) for _ in range(config.num_layers)))

    def states(self, vectors: Tensor, counts: Tensor, times: Tensor | None = None) -> Tensor:
        """Return the prediction after each item, shape (B, L, D); items without times are a unit apart."""
        buckets = None
        if self.config.relative_time:
            if times is None:
                times = torch.arange(vectors.shape[1], device=vectors.device).expand(vectors.shape[:2])
            buckets = time_buckets(times)
        states: Tensor = self.network(vectors, counts, buckets)
        return states


class Block(nn.Module):
    """x + f₂(norm(A v) * u) with u, v, q, k = silu(f₁(norm(x))) and A = silu(q kᵀ + bias) / N over earlier items.

    N is the number of items so far. The bias of two items is a learned number of their distance, plus one of the bucket
    of their time apart.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim = config.embedding_dim
        self._heads = config.num_heads
        self.before, self.after = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.inward, self.outward = nn.Linear(dim, 4 * dim), nn.Linear(dim, dim)
        init_small(self.outward)
        self.dropout = Dropout(config.dropout)
        self.by_distance = nn.Parameter(torch.zeros(config.num_positions))
        self.by_time = nn.Parameter(torch.zeros(_BUCKETS, 1)) if config.relative_time else None

    def forward(self, states: Tensor, layout: Jagged, buckets: Tensor | None) -> Tensor:
        """Return the states of the next block, shape (T, D)."""
        dim = states.shape[1]
        gate, inner = F.silu(self.inward(self.before(states))).split([dim, 3 * dim], dim=1)
        parts = layout.pad(inner).unflatten(2, (3, self._heads, dim // self._heads))
        value, query, key = parts.permute(2, 0, 3, 1, 4).unbind(0)
        weights = F.silu(query @ key.mT + self._bias(layout.length, buckets)).tril()
        seen = torch.arange(1, layout.length + 1, device=states.device).unsqueeze(1)
        attended = layout.pack(((weights / seen) @ value).transpose(1, 2)).flatten(1)
        return states + self.outward(self.dropout(self.after(attended) * gate))

    def _bias(self, length: int, buckets: Tensor | None) -> Tensor:
        """Return the biases of pairs of items, shape (B, 1, L, L) or (L, L)."""
        places = torch.arange(length, device=self.by_distance.device)
        bias = self.by_distance[(places.unsqueeze(1) - places).clamp(min=0)]
        if self.by_time is None or buckets is None:
            return bias
        return bias + F.embedding(buckets, self.by_time).squeeze(-1).unsqueeze(1)


def time_buckets(times: Tensor) -> Tensor:
    """Return the bucket of the time between each two items, shape (B, L, L), from their times, shape (B, L)."""
    apart = (times.unsqueeze(2) - times.unsqueeze(1)).clamp(min=1)
    return (apart.double().log() / math.log(_BASE)).long().clamp(max=_BUCKETS - 1)
