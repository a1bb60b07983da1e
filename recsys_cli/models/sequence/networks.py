"""Sequence models over a Transformer or a GRU: sasrec, bert4rec and gru4rec."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.features.schema import PADDING, Schema
from recsys_cli.models.configs.sequence import (
    AttentionOptions,
    BERT4RecConfig,
    GRU4RecConfig,
    SASRecConfig,
    TransformerOptions,
)
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.layers import Dropout
from recsys_cli.models.sequence.histories import Group, Jagged, Windows
from recsys_cli.models.sequence.losses import repeats
from recsys_cli.models.sequence.model import SequenceModel

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


class SASRec(SequenceModel):
    """SASRec: causal self-attention; the state at each item predicts the next one.

    Kang and McAuley, "Self-attentive sequential recommendation" (2018), with pre-norm blocks, and a sampled softmax in
    place of binary cross-entropy: the loss makes its quality (Klenitskiy and Vasilev, "Turning dross into gold loss",
    2023).
    """

    config: SASRecConfig

    def __init__(self, config: SASRecConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.network = Transformer(config, causal=True, hidden=config.embedding_dim, activation=nn.ReLU).apply(
            init_small
        )


class GRU4Rec(SequenceModel):
    """GRU4Rec: a GRU over the user history, and a dense layer from its state to the vector of the next item.

    Hidasi et al., "Session-based recommendations with recurrent neural networks" (2016), with sampled softmax and tied
    embeddings as in Hidasi and Karatzoglou, "Recurrent neural networks with top-k gains for session-based
    recommendations" (2018).
    """

    config: GRU4RecConfig

    def __init__(self, config: GRU4RecConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.dropout = Dropout(config.dropout or 0.0)
        between = (config.dropout or 0.0) if config.num_layers > 1 else 0.0
        self.network = nn.GRU(
            config.embedding_dim, config.hidden_size, config.num_layers, batch_first=True, dropout=between
        )
        self.outward = nn.Linear(config.hidden_size, config.embedding_dim)

    def states(self, vectors: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the prediction after each item, shape (P, D)."""
        del times
        # Each group costs steps as many as its length, so few of them. A `PackedSequence` takes twice as long on a CPU.
        inputs = self.dropout(vectors * self.config.embedding_dim**0.5)
        states = Jagged(layout.counts, similarity=0.5).map(self._states, inputs)
        outward: Tensor = self.outward(self.dropout(states if at is None else states[at]))
        return outward

    def _states(self, group: Group, inputs: Tensor) -> Tensor:
        del group  # a GRU is causal, and padding is at the end
        states: Tensor = self.network(inputs)[0]
        return states


class BERT4Rec(SequenceModel):
    """BERT4Rec: training predicts randomly masked items; scoring predicts a mask after the latest item.

    Sun et al., "BERT4Rec: sequential recommendation with bidirectional encoder representations from Transformer" (2019), with
    pre-norm blocks and the sampled softmax of the other sequence models. Items have no bias, so that a score is a dot product.
    """

    config: BERT4RecConfig

    def __init__(self, config: BERT4RecConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        dim = config.embedding_dim
        self.mask = nn.Parameter(torch.empty(dim).normal_(std=INITIAL_STD))
        self.network = Transformer(config, causal=False, hidden=4 * dim, activation=nn.GELU)
        self.outward = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))

    @property
    def window(self) -> int:
        """Length of the input, masks included."""
        return self.length

    def targets_of(self, items: float) -> float:
        """Return the expected number of masked items."""
        return (1 - self.config.last_share) * self.config.mask_share * items + self.config.last_share

    def predict(self, windows: Windows, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Predict randomly masked items; the last item if none was sampled."""
        targets = self._sample_masks(windows)
        inputs, places = torch.where(targets.unsqueeze(1), self.mask, vectors), targets.nonzero().squeeze(1)
        return targets, self.outward(self.states(inputs, windows.layout, at=places))

    def false_negatives(self, windows: Windows, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the targets for which each item is a false negative: itself, and of an unmasked item all of the window."""
        layout = windows.layout
        before = F.pad(targets.cumsum(0), (1, 0))
        first, last = before[layout.offsets[:-1]][layout.rows], before[layout.offsets[1:]][layout.rows]
        last = torch.where(repeats(windows.items.masked_fill(targets, PADDING), layout.rows), first, last)
        return torch.where(targets, before[:-1], first), torch.where(targets, before[1:], last)

    def encode(self, users: Tensor) -> Tensor:
        """Return the prediction of a mask after the latest items, shape (B, D)."""
        windows = self.histories.last(users, self.length - 1)
        layout = Jagged(windows.counts + 1)
        is_mask = layout.positions == windows.counts[layout.rows]
        vectors = self.mask.expand(len(is_mask), -1).clone()
        vectors[~is_mask] = self.window_vectors(windows)[windows.items != PADDING]
        vector: Tensor = self.outward(self.states(vectors, layout, at=layout.last))
        return vector

    def _sample_masks(self, windows: Windows) -> Tensor:
        layout, items = windows.layout, windows.items != PADDING
        masked = items & (torch.rand(items.shape, device=items.device) < self.config.mask_share)
        last_only = torch.rand(len(windows.counts), device=items.device) < self.config.last_share
        last_only |= torch.bincount(layout.rows[masked], minlength=len(last_only)) == 0
        last = torch.zeros_like(masked).index_fill_(0, layout.last, value=True) & items
        return torch.where(last_only[layout.rows], last, masked)
