"""Networks over concatenated, multiplied and crossed features: mlp, neumf, dcn-v2 and dlrm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Kind, Role, Schema
from recsys_cli.models.configs.ranking import (
    DCNv2Config,
    DeepFMConfig,
    DLRMConfig,
    FMConfig,
    LogisticConfig,
    MLPConfig,
    NeuMFConfig,
    WideDeepConfig,
)
from recsys_cli.models.embedding import Lookup, embed
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.layers import Dropout
from recsys_cli.models.ranking.layers import NumericColumns, Tower, numbers, numeric_columns
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.registry import suggest

Lookups = Mapping[str, Lookup]


class FirstOrder(nn.Module):
    """A linear model: per label an intercept, a weight per id (an embedding of width 1), and a slope per number."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        num_labels, num_numeric = len(schema.labels), len(numeric_columns(schema.numeric))
        self.weights = embed(schema.categorical, num_labels)
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

    def __init__(self, schema: Schema, dim: int) -> None:
        super().__init__()
        width, num_numeric = len(schema.labels) * dim, len(numeric_columns(schema.numeric))
        self.dim = dim
        self.first_order = FirstOrder(schema)
        self.vectors = embed(schema.categorical, width)
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

    def __init__(self, config: LogisticConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.first_order = FirstOrder(schema)

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights = self.first_order.weights.lookups(batch)
        return self.first_order(weights, numbers(batch, self.numeric)), [*weights.values()]


class FM(RankingModel):
    """logit = w0 + Σ wi xi + Σ <vi, vj> xi xj for each label, over all pairs i < j of features (Rendle 2010)."""

    def __init__(self, config: FMConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.machine = FactorizationMachine(schema, config.embedding_dim)

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights, vectors = self.machine.look_up(batch)
        return self.machine(weights, vectors, numbers(batch, self.numeric)), [*weights.values(), *vectors.values()]


class DeepFM(RankingModel):
    """The logits are the sum of a factorization machine and an MLP with shared embeddings (eq. 1).

    The MLP reads numeric features directly, in addition to the embeddings of the categorical columns.
    """

    def __init__(self, config: DeepFMConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.machine = FactorizationMachine(schema, config.embedding_dim)
        self.tower = Tower.of(config, self.machine.vectors.dims, len(self.numeric), len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights, vectors = self.machine.look_up(batch)
        dense = numbers(batch, self.numeric)
        logits = self.machine(weights, vectors, dense) + self.tower([*vectors.values()], dense)
        return logits, [*weights.values(), *vectors.values()]


class WideDeep(RankingModel):
    """The logits are the sum of a jointly trained linear model and MLP (eq. 3)."""

    def __init__(self, config: WideDeepConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        wide, deep = _part(schema, config.wide, option="wide"), _part(schema, config.deep, option="deep")
        self.wide_numeric, self.deep_numeric = (numeric_columns(part.features) for part in (wide, deep))
        self.wide = FirstOrder(wide)
        self.embeddings = embed(deep.categorical, config.embedding_dim)
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


class MLP(RankingModel):
    """Concatenated embeddings and numeric features, in the order of their names, through an MLP to one logit per label."""

    def __init__(self, config: MLPConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.embeddings = embed(schema.categorical, config.embedding_dim)
        self.tower = Tower.of(config, self.embeddings.dims, len(self.numeric), len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        lookups = list(self.embeddings.lookups(batch).values())
        return self.tower(lookups, numbers(batch, self.numeric)), lookups


class NeuMF(RankingModel):
    """logits = h · [p * q, tower]: products of user and item embeddings, and the last hidden layer of an MLP (eq. 12).

    h is linear, so it is computed in two summands. By default the MLP reads all features, the extension of section 3.1.
    """

    def __init__(self, config: NeuMFConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        pair = [schema.only(role) for role in (Role.USER, Role.ITEM)]
        for column in pair:
            if column.kind is not Kind.CATEGORICAL or column.ragged:
                raise ConfigError(
                    f"neumf needs categorical user and item columns, and {column.name} is none",
                    hint="add it to a Categorify op in features.ops",
                )
        self.user, self.item = pair
        self.by_content = config.content
        if not config.content:
            self.numeric = NumericColumns()
        columns = schema.categorical if config.content else pair
        self.vectors = embed(pair, config.mf_dim)
        self.embeddings = embed(columns, config.embedding_dim)
        self.products = nn.Linear(config.mf_dim, len(self.labels), bias=False)
        self.tower = Tower.of(config, self.embeddings.dims, len(self.numeric), len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        vectors = self.vectors.lookups(batch)
        embeddings = self.embeddings.lookups(batch, like=vectors)
        products = self.products(vectors[self.user.name].spread() * vectors[self.item.name].spread())
        deep = self.tower([*embeddings.values()], numbers(batch, self.numeric))
        return products + deep, [*vectors.values(), *embeddings.values()]


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


class DCNv2(RankingModel):
    """Cross layers over concatenated embeddings and numeric features, with an MLP stacked on them or parallel to them.

    In the parallel structure the output layer over both is linear, so it is computed in two summands: `crossed`, and
    the MLP's last layer.
    """

    def __init__(self, config: DCNv2Config, schema: Schema) -> None:
        super().__init__(config, schema)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.embeddings = embed(schema.categorical, config.embedding_dim)
        width = sum(self.embeddings.dims.values()) + len(self.numeric)
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


class DLRM(RankingModel):
    """The bottom MLP maps numeric features to one vector; it and all pairwise dot products are the input of the top MLP.

    Unlike the paper, a linear model learns first-order effects: data often has no numeric features, and embeddings with
    first-order effects overfit in their products.
    """

    def __init__(self, config: DLRMConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        dim, num_numeric = config.embedding_dim, len(self.numeric)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.embeddings = embed(schema.categorical, dim)
        self.first_order = FirstOrder(schema)
        self.bottom = Tower((), num_numeric, (*config.bottom_mlp, dim), dropout=config.dropout) if num_numeric else None
        fields = len(schema.categorical) + (num_numeric > 0)
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
