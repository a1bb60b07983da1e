"""Linear models and factorization machines, alone and beside an MLP: logistic, fm, deepfm and wide-deep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.configs.ranking import DeepFMConfig, FMConfig, LogisticConfig, WideDeepConfig
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.ranking.layers import Tower, numbers, numeric_columns
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.registry import suggest

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


class Logistic(RankingModel):
    """logit = w0 + Σ wi xi for each label, with a weight per id and a slope per numeric feature."""

    def __init__(
        self, config: LogisticConfig, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        self.first_order = FirstOrder(schema, sparse=sparse, placement=placement)

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights = self.first_order.weights.lookups(batch)
        return self.first_order(weights, numbers(batch, self.numeric)), [*weights.values()]


class FM(RankingModel):
    """logit = w0 + Σ wi xi + Σ <vi, vj> xi xj for each label, over all pairs i < j of features (Rendle 2010)."""

    def __init__(
        self, config: FMConfig, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        self.machine = FactorizationMachine(schema, config.embedding_dim, sparse=sparse, placement=placement)

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights, vectors = self.machine.look_up(batch)
        return self.machine(weights, vectors, numbers(batch, self.numeric)), [*weights.values(), *vectors.values()]


class DeepFM(RankingModel):
    """The logits are the sum of a factorization machine and an MLP with shared embeddings (eq. 1).

    The MLP reads numeric features directly, in addition to the embeddings of the categorical columns.
    """

    def __init__(
        self, config: DeepFMConfig, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        self.machine = FactorizationMachine(schema, config.embedding_dim, sparse=sparse, placement=placement)
        self.tower = Tower.of(config, self.machine.vectors.dims, len(self.numeric), len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights, vectors = self.machine.look_up(batch)
        dense = numbers(batch, self.numeric)
        logits = self.machine(weights, vectors, dense) + self.tower([*vectors.values()], dense)
        return logits, [*weights.values(), *vectors.values()]


class WideDeep(RankingModel):
    """The logits are the sum of a jointly trained linear model and MLP (eq. 3)."""

    def __init__(
        self, config: WideDeepConfig, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        wide, deep = _part(schema, config.wide, option="wide"), _part(schema, config.deep, option="deep")
        self.wide_numeric, self.deep_numeric = (numeric_columns(part.features) for part in (wide, deep))
        self.wide = FirstOrder(wide, sparse=sparse, placement=placement)
        widths_of = dims_of(deep.categorical, config.embedding_dim)
        self.embeddings = embed(deep.categorical, widths_of, sparse=sparse, placement=placement)
        self.tower = Tower.of(config, self.embeddings.dims, len(self.deep_numeric), len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights = self.wide.weights.lookups(batch)
        embeddings = self.embeddings.lookups(batch, like=weights)
        wide = self.wide(weights, numbers(batch, self.wide_numeric))
        deep = self.tower([*embeddings.values()], numbers(batch, self.deep_numeric))
        return wide + deep, [*weights.values(), *embeddings.values()]


def _part(schema: Schema, names: tuple[str, ...] | None, *, option: str) -> Schema:
    features = [column.name for column in schema.features]
    for name in names or ():
        if name not in features:
            raise ConfigError(
                f"model.{option}: no feature column {name!r}{suggest(name, features)}",
                hint=f"the features are {', '.join(features)}",
            )
    selected = features if names is None else names
    return Schema(columns=schema.select(lambda column: column.name in selected or column.role is Role.LABEL))
