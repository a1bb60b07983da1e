"""Transformer over items, the encoder of `sasrec` and `bert4rec`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.models.dropout import Dropout
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.sequence.histories import length_mask
from recsys_cli.models.sequence.options import TransformerOptions


class Transformer(nn.Module):
    """Blocks of attention and a dense network (Vaswani et al., 2017), pre-norm (Xiong et al., 2020), with learned positions.

    Positions count from the end, so that the latest item always has the same one, as with left padding. Sequences are
    padded on the right, so that causal attention never sees padding. Without `causal`, attention is to both sides.
    """

    def __init__(self, config: TransformerOptions, *, causal: bool, hidden: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self._causal = causal
        self._scale = math.sqrt(config.embedding_dim)
        self.positions = nn.Parameter(torch.empty(config.max_seq_len, config.embedding_dim).normal_(std=INITIAL_STD))
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            _Block(config, causal=causal, hidden=hidden, activation=activation) for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.embedding_dim)

    def forward(self, vectors: Tensor, counts: Tensor) -> Tensor:
        """Return the contextual states of the items, shape (B, L, D), with L up to `max_seq_len`, from their vectors and counts."""
        length, last = vectors.shape[1], len(self.positions) - 1
        index = torch.arange(length, device=counts.device) + (last + 1 - counts).unsqueeze(1)
        positions = F.embedding(index.clamp(max=last), self.positions)
        # The first position is always visible: attention over an empty set would be NaN.
        visible = None if self._causal else length_mask(counts.clamp(min=1), length)[:, None, None, :]
        states = self.dropout((vectors + positions) * self._scale)
        for block in self.blocks:
            states = block(states, visible)
        normed: Tensor = self.norm(states)
        return normed


class _Block(nn.Module):
    def __init__(self, config: TransformerOptions, *, causal: bool, hidden: int, activation: type[nn.Module]) -> None:
        super().__init__()
        dim = config.embedding_dim
        self._heads, self._causal = config.num_heads, causal
        self.before_attention, self.before_dense = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.inward, self.outward = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        dropout = Dropout(config.dropout)
        self.dropout = dropout
        self.dense = nn.Sequential(nn.Linear(dim, hidden), activation(), dropout, nn.Linear(hidden, dim), dropout)

    def forward(self, states: Tensor, visible: Tensor | None) -> Tensor:
        states = states + self.dropout(self._attend(self.before_attention(states), visible))
        return states + self.dense(self.before_dense(states))

    def _attend(self, states: Tensor, visible: Tensor | None) -> Tensor:
        rows, length, dim = states.shape
        parts = self.inward(states).view(rows, length, 3, self._heads, dim // self._heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        # No dropout on attention weights: torch has no fast CPU kernel with it, and all other parts have dropout.
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=visible, is_causal=self._causal)
        outward: Tensor = self.outward(attended.transpose(1, 2).reshape(rows, length, dim))
        return outward
