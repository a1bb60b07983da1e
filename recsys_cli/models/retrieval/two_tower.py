"""Two-tower model: a network per side over user and item features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Feature
from recsys_cli.features.schema import Column, Kind, Schema
from recsys_cli.models.configs.retrieval import TwoTowerConfig
from recsys_cli.models.embedding import Embeddings, dims_of, embed
from recsys_cli.models.layers import AllGatherRows
from recsys_cli.models.ranking.layers import Tower, numbers, numeric_columns
from recsys_cli.models.retrieval.model import RetrievalModel

_SHORTEST = 1e-3
"""Minimum norm in the normalization: a zero vector stays zero, with a gradient."""
_MAX_ROWS = 4_096
"""Maximum rows per score matrix: 75 MB with 512 sampled negatives. Validation has larger batches."""


def features_of(schema: Schema, key: Column) -> tuple[Column, ...]:
    """Return the columns of an id: the id itself and its features in the dimension table."""
    return tuple(column for column in schema.features if key.name in {column.name, column.table})


class Encoder(nn.Module):
    """Concatenated embeddings and numeric features, in the order of their names, through an MLP to a vector of length 1."""

    def __init__(self, columns: Sequence[Column], embeddings: Embeddings, config: TwoTowerConfig) -> None:
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


class TwoTower(RetrievalModel):
    """Two-tower retrieval: user and item features to vectors, trained by softmax over in-batch and sampled negatives.

    Candidates of each positive are the items of all positives in its batch (Yi et al., "Sampling-bias-corrected neural
    modeling for large corpus item recommendations", 2019) and uniform samples of the catalog (Yang et al., "Mixed
    negative sampling for learning two-tower neural networks in recommendations", 2020). The log-q correction takes
    counts in train, instead of a streaming estimate.

    Large batches are split into parts, to bound memory. Ranks share in-batch negatives, so that a step is the same for
    any number of ranks, and sample uniform negatives each. Features of an interaction, and features in its row
    (etl.layout=flat), enter no tower: they are unavailable for items without an interaction.
    """

    def __init__(self, config: TwoTowerConfig, schema: Schema) -> None:
        super().__init__(schema)
        self.config = config
        of_user, of_item = features_of(schema, self.user), features_of(schema, self.item)
        self.by_content = len(of_item) > 1 or len(of_user) > 1
        dims = dims_of(_ids((*of_user, *of_item)), config.embedding_dim)
        self.users, self.items = (
            Encoder(columns, embed(_ids(columns), {one.name: dims[one.name] for one in _ids(columns)}), config)
            for columns in (of_user, of_item)
        )
        self.all_rows = AllGatherRows()

    def score(self, batch: Batch) -> Tensor:
        """Return the dot product of user and item vector of each row, shape (B,)."""
        vectors = self.users(batch.features) * self.items(batch.features)
        return vectors.sum(dim=1) / self.config.temperature

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return user vectors, shape (U, dim), of length 1 / temperature."""
        return self.users(self.context.join({self.user.name: users})) / self.config.temperature

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return item vectors, shape (I, dim), of length 1."""
        vectors: Tensor = self.items(self.context.join({self.item.name: items}))
        return vectors

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over the batch's rows of weight * loss, 0 for rows that are not positive."""
        del scores
        positives = self.positives(batch)
        negatives = self.catalog.sample(self.config.num_negatives)
        users, items = positives.users, positives.items
        # One lookup of all items reads each distinct row, and gives it a gradient, once.
        of_rows, of_negatives = self.item_vectors(torch.cat([items, negatives])).split([len(items), len(negatives)])
        (items, of_rows), before = self.all_rows(items, of_rows)
        of_users = self.user_vectors(users)
        losses = []
        for part in _parts(len(items)):
            start, stop = (min(max(row - before, 0), len(users)) for row in (part.start, part.stop))
            candidates, vectors = torch.cat([items[part], negatives]), torch.cat([of_rows[part], of_negatives])
            first = before + start - part.start
            losses.append(self._cross_entropy(users[start:stop], candidates, of_users[start:stop] @ vectors.T, first))
        return positives.mean(torch.cat(losses))

    def without_rows(self, batch: Batch) -> Tensor:
        """Return a loss of 0, and take part in the other ranks' in-batch negatives."""
        return self.loss(batch)

    def _cross_entropy(self, users: Tensor, candidates: Tensor, scores: Tensor, first: int) -> Tensor:
        """Return the cross-entropy of each user's own candidate, shape (P,), from scores of shape (P, C).

        Candidates are items of rows, then the sampled negatives; the first user's own is at index `first`, the others
        follow.
        """
        logits = scores.float()
        row = torch.arange(len(users), device=logits.device)
        own = first + row
        if self.config.log_q:
            # Expected count of an item among the rows and the sampled negatives.
            rows = len(candidates) - self.config.num_negatives
            expected = rows * self.catalog.share(candidates) + self.config.num_negatives / len(self.catalog)
            logits = logits - expected.log()
        if self.config.filter_false_negatives:
            others = self.catalog.positives(users, candidates)
            others[row, own] = False
            logits = logits.masked_fill(others, -torch.inf)
        return F.cross_entropy(logits, own, reduction="none")


def _ids(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.kind is Kind.CATEGORICAL]


def _parts(rows: int) -> list[slice]:
    number = max(1, -(-rows // _MAX_ROWS))
    return [slice(rows * part // number, rows * (part + 1) // number) for part in range(number)]
