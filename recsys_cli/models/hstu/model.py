"""HSTU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.hstu.attention import BUCKETS, pointwise_attention
from recsys_cli.models.hstu.config import Config
from recsys_cli.models.sequence.jagged import Group, Jagged
from recsys_cli.models.sequence.model import SequenceModel
from recsys_cli.models.sequence.transformer import Encoder, heads, init_small


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

    def states(self, vectors: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the prediction after each item, shape (P, D); items without times are a unit apart."""
        states: Tensor = self.network(vectors, layout, layout.positions.double() if times is None else times, at)
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
        self.dropout = Dropout(config.dropout or 0.0)
        self.by_distance = nn.Parameter(torch.zeros(config.num_positions))
        self.by_time = nn.Parameter(torch.zeros(BUCKETS, 1)) if config.relative_time else None

    def forward(self, states: Tensor, layout: Jagged, times: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the states of the next block, shape (T, D); with P places only those, shape (P, D)."""
        dim = states.shape[1]
        gate, inner = F.silu(self.inward(self.before(states))).split([dim, 3 * dim], dim=1)
        attended = layout.map(self._attention, inner, times)
        if at is not None:
            states, attended, gate = states[at], attended[at], gate[at]
        return states + self.outward(self.dropout(self.after(attended) * gate))

    def _attention(self, group: Group, parts: Tensor, times: Tensor) -> Tensor:
        """Return the attended values of a group, shape (S, L, D), from its values, queries and keys, shape (S, L, 3D)."""
        del group  # attention is causal, and padding is at the end
        value, query, key = heads(parts, 3, self._heads)
        by_time = None if self.by_time is None else self.by_time.squeeze(1)
        attended = pointwise_attention(
            (query, key, value), self.by_distance, by_time, None if by_time is None else times
        )
        return attended.transpose(1, 2).flatten(2)
