"""Two towers that learn from the items of the batch and from drawn ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Feature
from recsys_cli.config import Placement
from recsys_cli.features.schema import Column, Kind, Schema
from recsys_cli.models.all_gather import AllGatherRows
from recsys_cli.models.embedding import dims_of, embed
from recsys_cli.models.retrieval.model import RetrievalModel
from recsys_cli.models.two_tower.config import Config
from recsys_cli.models.two_tower.tower import Encoder, features_of

_MOST = 4_096
"""Rows that are compared with each other's items at most: 75 MB of scores with 512 drawn items. Validation has larger batches."""


class Model(RetrievalModel):
    """A vector from all features of the user, one from all of the item, and a softmax over the items that a batch has.

    Each positive is to be chosen among the items of all positives of its batch (Yi et al., "Sampling-bias-corrected neural
    modeling for large corpus item recommendations", 2019) and some that are drawn from the whole catalog (Yang et al., "Mixed
    negative sampling for learning two-tower neural networks in recommendations", 2020). How often an item is to be expected
    among them follows from its positives in train, which are counted instead of estimated as the stream goes by.

    Rows of a large batch are compared in parts of at most 4,096, which bounds the memory. Processes that train together compare
    with the items of all their rows, so that a step is the same for any number of them; the other items each draws for itself,
    and hidden layers normalise over all that are drawn. Features of an interaction, and those that were written into its row
    (etl.layout=flat), are in no tower: they are not known of an item that was not met.

    Raises:
        ConfigError: The schema has not one user, one item, and a label; a user or an item has a list of numbers; or
            `embedding_dim` names a column that is in no tower.
    """

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(schema)
        self.config = config
        of_user, of_item = features_of(schema, self.user), features_of(schema, self.item)
        self.by_content = len(of_item) > 1 or len(of_user) > 1
        dims = dims_of(_ids((*of_user, *of_item)), config.embedding_dim)
        self.users, self.items = (
            Encoder(columns, embed(_ids(columns), dims, sparse=sparse, placement=placement), config)
            for columns in (of_user, of_item)
        )
        self.everyones = AllGatherRows()

    def score(self, batch: Batch) -> Tensor:
        """Return the product of the two vectors of each row, shape (B,)."""
        vectors = self.users(batch.features) * self.items(batch.features)
        return vectors.sum(dim=1) / self.config.temperature

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return a vector for each user, shape (U, dim); its length is 1 / temperature."""
        return self.users(self._features(self.user.name, users)) / self.config.temperature

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return a vector for each item, shape (I, dim), of length 1."""
        vectors: Tensor = self.items(self._features(self.item.name, items))
        return vectors

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over the batch's rows of weight * loss, where only positives have one; a float32 scalar."""
        del scores
        positives = self.positives(batch)
        drawn = self.catalog.draw(self.config.num_negatives)
        users, items = positives.users, positives.items
        # All items in one lookup, so that each used row is read, and gets its gradient, once.
        of_rows, of_drawn = self.item_vectors(torch.cat([items, drawn])).split([len(items), len(drawn)])
        (items, of_rows), before = self.everyones(items, of_rows)
        of_users = self.user_vectors(users)
        losses = []
        for part in _parts(len(items)):
            start, stop = (min(max(place - before, 0), len(users)) for place in (part.start, part.stop))
            candidates, vectors = torch.cat([items[part], drawn]), torch.cat([of_rows[part], of_drawn])
            first = before + start - part.start
            losses.append(self._among(users[start:stop], candidates, of_users[start:stop] @ vectors.T, first))
        return positives.mean(torch.cat(losses))

    def without_rows(self, batch: Batch) -> Tensor:
        """Return 0: rows of other processes are compared with each other all the same."""
        return self.loss(batch)

    def _among(self, users: Tensor, candidates: Tensor, scores: Tensor, first: int) -> Tensor:
        """Return the loss of choosing for each user the candidate of the same row, shape (P,).

        Args:
            users: Encoded, int64, shape (P,).
            candidates: Encoded items, of rows and then the drawn ones; int64, shape (C,).
            scores: Of each for each, shape (P, C).
            first: The place of the first user's candidate; the others follow.
        """
        logits = scores.float()
        row = torch.arange(len(users), device=logits.device)
        own = first + row
        if self.config.log_q:
            # How often an item is to be expected among so many rows, and among the drawn ones.
            rows = len(candidates) - self.config.num_negatives
            expected = rows * self.catalog.share(candidates) + self.config.num_negatives / len(self.catalog)
            logits = logits - expected.log()
        if self.config.filter_false_negatives:
            others = self.catalog.positives(users, candidates)
            others[row, own] = False
            logits = logits.masked_fill(others, -torch.inf)
        return F.cross_entropy(logits, own, reduction="none")

    def _features(self, key: str, ids: Tensor) -> Mapping[str, Feature]:
        return self.context.join({key: ids})


def _ids(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that have embeddings."""
    return [column for column in columns if column.kind is Kind.CATEGORICAL]


def _parts(rows: int) -> list[slice]:
    """Cut rows into parts of about the same size, at least one."""
    number = max(1, -(-rows // _MOST))
    return [slice(rows * part // number, rows * (part + 1) // number) for part in range(number)]
