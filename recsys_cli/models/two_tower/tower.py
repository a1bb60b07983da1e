"""One tower: features of a user, or of an item, to a vector of length 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Feature
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Schema
from recsys_cli.models.embedding import Embeddings
from recsys_cli.models.ranking.tower import Tower
from recsys_cli.models.two_tower.config import Config

_SHORTEST = 1e-3
"""A vector shorter than this is divided by this instead of by its length: a zero stays a zero, with a gradient."""


def features_of(schema: Schema, key: Column) -> tuple[Column, ...]:
    """Return the columns that follow from an id: the id itself, and what its table has.

    Raises:
        ConfigError: One of them is a list of numbers.
    """
    columns = tuple(column for column in schema.features if key.name in {column.name, column.table})
    lists = [column.name for column in columns if column.kind is Kind.NUMERIC and column.ragged]
    if lists:
        raise ConfigError(
            f"two-tower takes no lists of numbers, and {', '.join(lists)} has them",
            hint="categorify them, drop them, or weight a list by them with features.list_weights",
        )
    return columns


class Encoder(nn.Module):
    """Embeddings and numbers, concatenated in the order of their names, through dense layers to a vector of length 1.

    Args:
        columns: What it looks at, as `features_of` gives it.
        embeddings: Of those of them that are ids.
        config: Of the model.
    """

    def __init__(self, columns: Sequence[Column], embeddings: Embeddings, config: Config) -> None:
        super().__init__()
        self.numeric = tuple(sorted(column.name for column in columns if column.kind is Kind.NUMERIC))
        self.embeddings = embeddings
        dims, widths = list(embeddings.dims.values()), (*config.hidden, config.dim)
        self.tower = Tower(
            dims, len(self.numeric), widths, dropout=config.dropout, embedding_dropout=config.embedding_dropout
        )
        # Embeddings begin small: beside a bias that does not, all vectors would point the same way.
        nn.init.zeros_(self.tower.first.linear.bias)

    def forward(self, features: Mapping[str, Feature]) -> Tensor:
        """Return the vectors of B users or items, shape (B, dim), float32."""
        batch = Batch(features, {})
        vectors = self.tower(list(self.embeddings.lookups(batch).values()), self._numbers(batch))
        return F.normalize(vectors.float(), dim=1, eps=_SHORTEST)

    def _numbers(self, batch: Batch) -> Tensor:
        columns = [batch.features[name] for name in self.numeric]
        dense = [column.float() for column in columns if isinstance(column, Tensor)]
        return torch.stack(dense, dim=1) if dense else self.tower.first.linear.weight.new_empty((batch.num_rows, 0))
