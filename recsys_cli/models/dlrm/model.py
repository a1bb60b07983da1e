"""DLRM (Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.dlrm.config import Config
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.embedding import Lookup, embed
from recsys_cli.models.ranking.factorization import FirstOrder
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers
from recsys_cli.models.ranking.tower import Tower


class Model(RankingModel):
    """The bottom MLP maps numeric features to one vector; it and all pairwise dot products are the input of the top MLP.

    Unlike the paper, a linear model learns first-order effects: data often has no numeric features, and embeddings with
    first-order effects overfit in their products.
    """

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        dim, num_numeric = config.embedding_dim, len(self.numeric)
        widths = {column.name: dim for column in schema.categorical}
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.embeddings = embed(schema.categorical, widths, sparse=sparse, placement=placement)
        self.first_order = FirstOrder(schema, sparse=sparse, placement=placement)
        self.bottom = Tower((), num_numeric, (*config.bottom_mlp, dim), dropout=config.dropout) if num_numeric else None
        fields = len(widths) + (num_numeric > 0)
        inputs = fields * (fields - 1) // 2 + (dim if num_numeric else 0)
        layers = (*config.top_mlp, len(self.labels))
        self.top = Tower((), inputs, layers, dropout=config.dropout, batch_norm=config.batch_norm) if inputs else None

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        dense = numbers(batch, self.numeric)
        weights = self.first_order.weights.lookups(batch)
        embeddings = self.embeddings.lookups(batch, like=weights)
        looked_up = [*weights.values(), *embeddings.values()]
        logits = self.first_order(weights, dense)
        if self.top is None:  # one column of ids has no pair
            return logits, looked_up
        fields = [self.embedding_dropout(lookup.spread()) for lookup in embeddings.values()]
        if self.bottom is None:
            return logits + self.top((), pairwise_products(fields)), looked_up
        bottom = self.bottom((), dense).float()
        return logits + self.top((), torch.cat([bottom, pairwise_products([bottom, *fields])], dim=1)), looked_up


def pairwise_products(fields: Sequence[Tensor]) -> Tensor:
    """Return the dot product of each pair of F fields, shape (B, D), in the order 1·0, 2·0, 2·1, ...; shape (B, F (F - 1) / 2)."""
    stacked = torch.stack(list(fields), dim=1)
    first, second = torch.tril_indices(len(fields), len(fields), offset=-1, device=stacked.device)
    return torch.bmm(stacked, stacked.transpose(1, 2))[:, first, second]
