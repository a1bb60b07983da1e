"""First-order and pairwise feature terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.embedding import Lookup, embed
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.ranking.numbers import numeric_columns

Lookups = Mapping[str, Lookup]


class FirstOrder(nn.Module):
    """A linear model: per label an intercept, a weight per id (an embedding of width 1), and a slope per number."""

    def __init__(self, schema: Schema, *, sparse: bool = False, placement: Placement = "device") -> None:
        super().__init__()
        num_labels, num_numeric = len(schema.labels), len(numeric_columns(schema.numeric))
        widths = {column.name: num_labels for column in schema.categorical}
        self.weights = embed(schema.categorical, widths, sparse=sparse, placement=placement)
        self.bias = nn.Parameter(torch.zeros(num_labels))
        self.slopes = nn.Parameter(torch.zeros(num_labels, num_numeric)) if num_numeric else None

    def forward(self, weights: Lookups, numbers: Tensor) -> Tensor:
        """Return the linear terms, shape (B, T), of lookups of `self.weights` and numeric features, shape (B, n)."""
        total = self.bias.expand(numbers.shape[0], -1)
        if self.slopes is not None:
            total = total + F.linear(numbers, self.slopes)
        for lookup in weights.values():
            total = total + lookup.spread()
        return total


class FactorizationMachine(nn.Module):
    """A linear model plus the dot products of all feature pairs (Rendle, "Factorization Machines", 2010, eq. 1).

    A list is one feature with the sum of its elements' embeddings; a numeric feature scales the embedding of its
    column. Each label has embeddings of its own, of width `dim`.
    """

    def __init__(self, schema: Schema, dim: int, *, sparse: bool = False, placement: Placement = "device") -> None:
        super().__init__()
        width, num_numeric = len(schema.labels) * dim, len(numeric_columns(schema.numeric))
        widths = {column.name: width for column in schema.categorical}
        self.dim = dim
        self.first_order = FirstOrder(schema, sparse=sparse, placement=placement)
        self.vectors = embed(schema.categorical, widths, sparse=sparse, placement=placement)
        self.directions = nn.Parameter(torch.randn(num_numeric, width) * INITIAL_STD) if num_numeric else None

    def look_up(self, batch: Batch) -> tuple[Lookups, Lookups]:
        """Return the lookups of weights and embeddings."""
        weights = self.first_order.weights.lookups(batch)
        return weights, self.vectors.lookups(batch, like=weights)

    def forward(self, weights: Lookups, vectors: Lookups, numbers: Tensor) -> Tensor:
        """Return a logit per label, shape (B, T), from the results of `look_up` and numeric features, shape (B, n)."""
        fields = [lookup.spread() for lookup in vectors.values()]
        if self.directions is not None:
            fields += (numbers.unsqueeze(2) * self.directions).unbind(1)
        linear: Tensor = self.first_order(weights, numbers)
        return linear + sum_of_pairs(fields).unflatten(1, (-1, self.dim)).sum(2)


def sum_of_pairs(fields: Sequence[Tensor]) -> Tensor:
    """Return the sum of the elementwise products of all pairs of fields, shape (B, D), in linear time.

    It is half of (square of the sum - sum of the squares) (Rendle 2010, lemma 3.1).
    """
    stacked = torch.stack(list(fields))
    return (stacked.sum(0).square() - stacked.square().sum(0)) / 2
