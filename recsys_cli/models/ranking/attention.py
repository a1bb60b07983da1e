"""Attention over the user history: din and bst."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.features.schema import Schema
from recsys_cli.models.configs.ranking import BSTConfig, DINConfig
from recsys_cli.models.embedding import Lookup, embed
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.layers import Dropout
from recsys_cli.models.ranking.history import EventEmbeddings, Events
from recsys_cli.models.ranking.layers import Tower, numbers
from recsys_cli.models.ranking.model import RankingModel


class ActivationUnit(nn.Module):
    """Sum of a history by attention to the target: v(A) = Σⱼ a(eⱼ, v_A) eⱼ, an MLP a over e, v and e ⊙ v (eq. 3).

    The weights are not normalized: their sum is the strength of the interest. The activation is PReLU. Its data-dependent
    variant Dice (eq. 4) needs statistics of the batch, and e - v, which the authors' code adds, is linear in the others.
    """

    def __init__(self, dim: int, dims: Sequence[int]) -> None:
        super().__init__()
        first, *rest = dims
        self.event, self.target, self.product = (nn.Linear(dim, first, bias=bias) for bias in (True, False, False))
        layers: list[nn.Module] = [nn.PReLU()]
        for before, after in zip([first, *rest], rest, strict=False):
            layers += [nn.Linear(before, after), nn.PReLU()]
        self.rest = nn.Sequential(*layers, nn.Linear(dims[-1], 1))

    def forward(self, events: Events) -> Tensor:
        """Return the weighted sum, shape (B, E); zero for an empty history."""
        vectors, target = events.vectors(), events.target.unsqueeze(1)
        hidden = self.event(vectors) + self.target(target) + self.product(vectors * target)
        weights = self.rest(hidden).squeeze(2).masked_fill(~events.window.mask, 0)
        return (weights.unsqueeze(1) @ vectors).squeeze(1)


class HistoryModel(RankingModel):
    """An MLP over embeddings, numeric features and a vector of each row's history and item."""

    pools_history = False

    def __init__(self, config: DINConfig | BSTConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        assert self.history is not None
        self.embeddings = embed(schema.categorical, config.embedding_dim)
        self.events = EventEmbeddings(self.history, self.embeddings)
        self.interest, module, width = self.interest_of(config)
        self.add_module(self.interest, module)
        self.tower = Tower.of(config, self.embeddings.dims, len(self.numeric) + width, len(self.labels))

    @abstractmethod
    def interest_of(self, config: Any) -> tuple[str, nn.Module, int]:
        """Return name and module of the function from `Events` to the vector, shape (B, D), and D."""

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        events, lookups = self.events(batch, training=self.training)
        interest = events.map(self.get_submodule(self.interest))
        return self.tower(lookups, torch.cat([numbers(batch, self.numeric), interest], dim=1)), lookups


class DIN(HistoryModel):
    """An MLP over embeddings, numeric features and the attended history."""

    def interest_of(self, config: DINConfig) -> tuple[str, nn.Module, int]:
        """Return the attention to the history."""
        return "attention", ActivationUnit(self.events.dim, config.attention_dims), self.events.dim


class Layer(nn.Module):
    """S = LN(E + Dropout(MultiHead(E))), F = LN(S + Dropout(FFN(S))), with a LeakyReLU in the FFN (eq. 2 to 6)."""

    def __init__(self, config: BSTConfig) -> None:
        super().__init__()
        width, self.num_heads = config.hidden_size, config.num_heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.feed_forward = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(), nn.Linear(width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, tokens: Tensor, mask: Tensor, *, last: bool) -> Tensor:
        """Return the next tokens, shape (B, L, D), of masked ones (B, L); only those of the target if `last`."""
        own = tokens[:, :1] if last else tokens
        query, key, value = (
            layer(part).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
            for layer, part in ((self.query, own), (self.key, tokens), (self.value, tokens))
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
        attended = self.output(attended.transpose(1, 2).flatten(2))
        state = self.norms[0](own + self.dropout(attended))
        following: Tensor = self.norms[1](state + self.dropout(self.feed_forward(state)))
        return following


class SequenceTransformer(nn.Module):
    """Transformer of the target and its history, with learned positions by distance to the target.

    The paper takes time differences as positions, and passes the outputs of all positions on. Here it is the order, and the
    output of the target, which attends to all events. Tokens are normalized first, because embeddings start small.
    """

    def __init__(self, config: BSTConfig, dim: int) -> None:
        super().__init__()
        self.projection = nn.Sequential(nn.Linear(dim, config.hidden_size), nn.LayerNorm(config.hidden_size))
        self.positions = nn.Parameter(
            torch.empty(config.history.max_seq_len + 1, config.hidden_size).normal_(std=INITIAL_STD)
        )
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))

    def forward(self, events: Events) -> Tensor:
        """Return the target's output, shape (B, D)."""
        mask = events.window.mask
        tokens = self.projection(torch.cat([events.target.unsqueeze(1), events.vectors()], dim=1))
        distances = mask.flip(1).cumsum(1).flip(1)  # 1 for the latest event
        tokens = tokens + self.positions[F.pad(distances, (1, 0))]
        mask = F.pad(mask, (1, 0), value=True)
        for number, layer in enumerate(self.layers, 1):
            tokens = layer(tokens, mask, last=number == len(self.layers))
        return tokens[:, 0]


class BST(HistoryModel):
    """An MLP over embeddings, numeric features and the transformed target."""

    def interest_of(self, config: BSTConfig) -> tuple[str, nn.Module, int]:
        """Return the transformer of the target and its history."""
        return "transformer", SequenceTransformer(config, self.events.dim), config.hidden_size
