"""DCN-V2 (Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale Learning to Rank", WWW 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.dcn_v2.config import Config
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers
from recsys_cli.models.ranking.tower import Tower


class Cross(nn.Module):
    """One cross layer: x0 * (W x + b) + x (eq. 1), or low-rank with W = U Vᵀ (eq. 2)."""

    def __init__(self, width: int, rank: int | None = None) -> None:
        super().__init__()
        self.down = nn.Identity() if rank is None else nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank or width, width)

    def forward(self, first: Tensor, current: Tensor) -> Tensor:
        """Return the next x from x0, the input of the first layer, and the current x; shape (B, width)."""
        crossed: Tensor = first * self.up(self.down(current)) + current
        return crossed


class Model(RankingModel):
    """Cross layers over concatenated embeddings and numeric features, with an MLP stacked on them or parallel to them.

    In the parallel structure the output layer over both is linear, so it is computed in two summands: `crossed`, and
    the MLP's last layer.
    """

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        widths_of = dims_of(schema.categorical, config.embedding_dim)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.embeddings = embed(schema.categorical, widths_of, sparse=sparse, placement=placement)
        width = sum(widths_of.values()) + len(self.numeric)
        self.layers = nn.ModuleList(Cross(width, config.rank) for _ in range(config.num_cross_layers))
        parallel = config.structure == "parallel"
        self.crossed = nn.Linear(width, len(self.labels), bias=False) if parallel else None
        self.tower = Tower(
            (), width, (*config.hidden_dims, len(self.labels)), dropout=config.dropout, batch_norm=config.batch_norm
        )

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        lookups = list(self.embeddings.lookups(batch).values())
        spread = [self.embedding_dropout(lookup.spread()) for lookup in lookups]
        crossed = first = torch.cat([*spread, numbers(batch, self.numeric)], dim=1)
        for layer in self.layers:
            crossed = layer(first, crossed)
        if self.crossed is None:
            return self.tower((), crossed), lookups
        return self.tower((), first) + self.crossed(crossed), lookups
