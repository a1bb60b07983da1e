"""DIN (Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", KDD 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.din.config import Config
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.history.events import EventEmbeddings, Events
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers
from recsys_cli.models.ranking.tower import Tower


class ActivationUnit(nn.Module):
    """Sum of a history by attention to the target: v(A) = Σⱼ a(eⱼ, v_A) eⱼ, an MLP a over e, v and e ⊙ v (eq. 3).

    The weights are not normalized: their sum is the strength of the interest. The activation is PReLU. Its data-dependent
    variant Dice (eq. 4) needs statistics of the batch, and e - v, which the authors' code adds, is linear in the others.

    Args:
        dim: Width of the embeddings.
        dims: Widths of the MLP's layers.
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


class Model(RankingModel):
    """An MLP over embeddings, numeric features and the attended history."""

    pools_history = False

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        assert self.history is not None
        dims = dims_of(schema.categorical, config.embedding_dim)
        self.embeddings = embed(schema.categorical, dims, sparse=sparse, placement=placement)
        self.events = EventEmbeddings(self.history, self.embeddings)
        self.attention = ActivationUnit(self.events.dim, config.attention_dims)
        num_dense = len(self.numeric) + self.events.dim
        self.tower = Tower.of(config, self.embeddings.dims, num_dense, len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        events, lookups = self.events(batch, training=self.training)
        interest = events.map(self.attention)
        return self.tower(lookups, torch.cat([numbers(batch, self.numeric), interest], dim=1)), lookups
