"""One tower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Feature
from recsys_cli.features.schema import Column, Schema
from recsys_cli.models.embedding import Embeddings
from recsys_cli.models.ranking.numbers import numbers, numeric_columns
from recsys_cli.models.ranking.tower import Tower
from recsys_cli.models.two_tower.config import Config

_SHORTEST = 1e-3
"""Minimum norm in the normalization: a zero vector stays zero, with a gradient."""


def features_of(schema: Schema, key: Column) -> tuple[Column, ...]:
    """Return the columns of an id: the id itself and its features in the dimension table."""
    return tuple(column for column in schema.features if key.name in {column.name, column.table})


class Encoder(nn.Module):
    """Concatenated embeddings and numeric features, in the order of their names, through an MLP to a vector of length 1."""

    def __init__(self, columns: Sequence[Column], embeddings: Embeddings, config: Config) -> None:
        super().__init__()
        self.numeric = numeric_columns(columns)
        self.embeddings = embeddings
        dims, widths = list(embeddings.dims.values()), (*config.hidden_dims, config.output_dim)
        self.tower = Tower(
            dims, len(self.numeric), widths, dropout=config.dropout, embedding_dropout=config.embedding_dropout
        )
        # Embeddings start small: a random bias would dominate, and all vectors would point the same way.
        nn.init.zeros_(self.tower.first.linear.bias)

    def forward(self, features: Mapping[str, Feature]) -> Tensor:
        """Return the vectors of B users or items, shape (B, dim), float32."""
        batch = Batch(features, {})
        vectors = self.tower(list(self.embeddings.lookups(batch).values()), numbers(batch, self.numeric))
        return F.normalize(vectors.float(), dim=1, eps=_SHORTEST)
