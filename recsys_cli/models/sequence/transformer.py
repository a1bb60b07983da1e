"""Attention over items: the encoder of `sasrec`, `bert4rec` and `hstu`."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.models.configs.sequence import AttentionOptions, TransformerOptions
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.layers import Dropout
from recsys_cli.models.sequence.histories import Group, Jagged

_WEIGHT_STD = 0.02


class Encoder(nn.Module):
    """Blocks over items with learned positions, and a last norm.

    Positions count from the end, so that the latest item always has the same one, as with left padding. Groups are
    padded on the right, so that causal attention never sees padding. A block is a function of packed items, shape
    (T, D), their `Jagged` layout, and their times, shape (T,), if the model reads them; the last block's also of the places
    of the states to return.
    """

    def __init__(self, config: AttentionOptions, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        dim = config.embedding_dim
        self._scale = math.sqrt(dim)
        self.positions = nn.Parameter(torch.empty(config.num_positions, dim).normal_(std=INITIAL_STD))
        self.dropout = Dropout(config.dropout or 0.0)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(dim)

    def forward(self, vectors: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the contextual states of items of sequences of up to `num_positions`.

        Args:
            vectors: Item vectors, shape (T, D).
            layout: Of the items.
            times: Of the items, shape (T,).
            at: Ascending places of the items whose states are needed, shape (P,); None for all.

        Returns:
            Shape (P, D).
        """
        index = layout.positions + (len(self.positions) - layout.counts)[layout.rows]
        states = self.dropout((vectors + F.embedding(index, self.positions)) * self._scale)
        *blocks, last = self.blocks
        for block in blocks:
            states = block(states, layout, times)
        states = last(states, layout, times, at)
        normalized: Tensor = self.norm(states)
        return normalized


class Transformer(Encoder):
    """Blocks of attention and a dense network (Vaswani et al., 2017), pre-norm (Xiong et al., 2020), or LiGR's.

    Without `causal`, attention is to both sides.
    """

    def __init__(self, config: TransformerOptions, *, causal: bool, hidden: int, activation: type[nn.Module]) -> None:
        def block() -> nn.Module:
            if config.layer == "ligr":
                return LigrBlock(config, causal=causal)
            return Block(config, causal=causal, hidden=hidden, activation=activation)

        super().__init__(config, (block() for _ in range(config.num_layers)))


class Block(nn.Module):
    """Multi-head attention and a dense network, each after a norm and added to its input."""

    def __init__(self, config: AttentionOptions, *, causal: bool, hidden: int, activation: type[nn.Module]) -> None:
        super().__init__()
        dim = config.embedding_dim
        self._heads, self._causal = config.num_heads, causal
        self.before_attention, self.before_dense = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.inward, self.outward = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        dropout = Dropout(config.dropout or 0.0)
        self.dropout = dropout
        self.dense = nn.Sequential(nn.Linear(dim, hidden), activation(), dropout, nn.Linear(hidden, dim), dropout)

    def forward(self, states: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the states of the next block, shape (T, D); with P places only those, shape (P, D)."""
        del times
        attended = self._attend(self.before_attention(states), layout, at)
        states = (states if at is None else states[at]) + self.dropout(attended)
        return states + self.dense(self.before_dense(states))

    def _attend(self, states: Tensor, layout: Jagged, at: Tensor | None) -> Tensor:
        attended = (
            layout.map(self._attention, self.inward(states)) if at is None else self._attend_at(states, layout, at)
        )
        outward: Tensor = self.outward(attended)
        return outward

    def _attend_at(self, states: Tensor, layout: Jagged, at: Tensor) -> Tensor:
        """Return what P of the T items attend to, shape (P, D): all items have keys and values, only those have queries."""
        dim, asking = states.shape[1], layout.select(at)
        weight, bias = self.inward.weight, self.inward.bias
        queries, others = F.linear(states[at], weight[:dim], bias[:dim]), F.linear(states, weight[dim:], bias[dim:])
        positions = asking.padded(layout.positions[at])
        return asking.packed(
            map(self._attention_at, layout.groups, asking.padded(queries), positions, layout.padded(others))
        )

    def _attention_at(self, group: Group, queries: Tensor, positions: Tensor, others: Tensor) -> Tensor:
        """Return the attended values of P items of each sequence of a group, shape (S, P, D).

        Args:
            group: Of the keys and values.
            queries: Shape (S, P, D).
            positions: Of the queries in their sequences, shape (S, P).
            others: Keys and values, shape (S, L, 2D).
        """
        (query,), (key, value) = heads(queries, 1, self._heads), heads(others, 2, self._heads)
        visible = self._visible(group)
        if self._causal:  # padding comes after the items
            visible = (torch.arange(group.length, device=positions.device) <= positions.unsqueeze(2)).unsqueeze(1)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=visible).transpose(1, 2).flatten(2)

    def _attention(self, group: Group, parts: Tensor) -> Tensor:
        """Return the attended values of a group, shape (S, L, D), from its queries, keys and values, shape (S, L, 3D)."""
        query, key, value = heads(parts, 3, self._heads)
        # No dropout on attention weights: torch has no fast CPU kernel with it, and all other parts have dropout.
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=self._visible(group), is_causal=self._causal
        )
        return attended.transpose(1, 2).flatten(2)

    def _visible(self, group: Group) -> Tensor | None:
        """Return the mask of the items for attention to both sides; None without padding."""
        return None if self._causal or group.mask is None else group.mask[:, None, None, :]


def heads(parts: Tensor, number: int, num_heads: int) -> tuple[Tensor, ...]:
    """Split values of a group, shape (S, L, number * D), into tensors of shape (S, heads, L, D / heads)."""
    return parts.unflatten(2, (number, num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


class LigrBlock(Block):
    """A block with gated residuals: x + f(norm(x)) * σ(W x), for attention and a SwiGLU network without biases as f.

    LiGR of Borisyuk et al., "From features to Transformers: redefining ranking for scalable impact" (2025), with the
    network (silu(W₁ x) * W₂ x) W₃ of eSASRec (Tikhonovich et al., "eSASRec: enhancing Transformer-based recommendations
    in a modular fashion", 2025).
    """

    def __init__(self, config: AttentionOptions, *, causal: bool) -> None:
        dim, hidden = config.embedding_dim, 4 * config.embedding_dim
        super().__init__(config, causal=causal, hidden=1, activation=nn.SiLU)
        self.dense = nn.Sequential(SwiGLU(dim, hidden), self.dropout, nn.Linear(hidden, dim, bias=False))
        self.attention_gate, self.dense_gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, states: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the states of the next block, shape (T, D); with P places only those, shape (P, D)."""
        del times
        attended = self._attend(self.before_attention(states), layout, at)
        states = states if at is None else states[at]
        states = states + self.dropout(attended * self.attention_gate(states).sigmoid())
        return states + self.dropout(self.dense(self.before_dense(states)) * self.dense_gate(states).sigmoid())


class SwiGLU(nn.Module):
    """silu(W₁ x) * W₂ x without biases (Shazeer, "GLU variants improve Transformer", 2020)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.inward = nn.Linear(dim, 2 * hidden, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        """Return the gated values, shape (T, hidden)."""
        gate, value = self.inward(values).chunk(2, dim=-1)
        return F.silu(gate) * value


def init_small(module: nn.Module) -> None:
    """Initialize a dense layer with small weights, so that a block initially changes its input little.

    Item embeddings start small; with torch's default weights the blocks' outputs would drown the item's own vector.
    `bert4rec`, with predictions from a mask, learns more slowly with it on MovieLens and goes without.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=_WEIGHT_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
