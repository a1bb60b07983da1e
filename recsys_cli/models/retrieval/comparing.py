"""Models that learn a vector for each id, by comparing what a user likes with drawn items."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.features.schema import Schema
from recsys_cli.models.retrieval import losses
from recsys_cli.models.retrieval.base import Positives, Retrieval
from recsys_cli.models.retrieval.options import Comparing
from recsys_cli.models.sequence.negatives import sampled_softmax

Loss = Literal["bpr", "warp", "softmax"]
_NEGATIVES: Mapping[Loss, int] = {"bpr": 1, "warp": 20, "softmax": 512}
_REGULARIZATION: Mapping[Loss, float] = {"bpr": 0.002, "warp": 0.05, "softmax": 0.05}


@dataclass(frozen=True)
class Side:
    """What some users, or some items, are to the loss.

    Attributes:
        vectors: Whose product is the score, shape (B, D).
        learnt: The rows of the tables that they come from, whose length `regularization` holds down; shape (B, D').
    """

    vectors: Tensor
    learnt: Tensor


class ComparingModel(Retrieval):
    """A retrieval model whose loss is one of `losses`, over items that are drawn for it.

    Args:
        options: How many are drawn, and which.
        loss: Which loss.
        schema: Has one user, one item, and a label.

    Raises:
        ConfigError: It has not.
    """

    def __init__(self, options: Comparing, loss: Loss, schema: Schema) -> None:
        super().__init__(schema)
        self.options = options
        self.rule = loss
        self.negatives = options.negatives or _NEGATIVES[loss]
        given = options.regularization
        self.regularization = _REGULARIZATION[loss] if given is None else given

    @abstractmethod
    def sides(self, users: Tensor, items: Tensor) -> tuple[Side, Side]:
        """Return the vectors of some users and of some items, with gradients.

        Args:
            users: Encoded, int64, shape (B,).
            items: Encoded, int64, shape (C,); C need not be B.
        """

    def score(self, batch: Batch) -> Tensor:
        """Return the product of the two vectors of each row, shape (B,)."""
        users, items = self.sides(*self.ids(batch))
        return (users.vectors * items.vectors).sum(dim=1).float()

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return a vector for each user, shape (U, D)."""
        return self.sides(users, users[:0])[0].vectors

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return a vector for each item, shape (I, D)."""
        return self.sides(items[:0], items)[1].vectors

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over the batch's rows of weight * loss, where only positives have one; a float32 scalar."""
        del scores
        positives = self.positives(batch)
        drawn = self._draw(positives)
        # All items in one lookup, so that each used row is read, and gets its gradient, once.
        users, items = self.sides(positives.users, torch.cat([positives.items, drawn.flatten()]))
        liked, others = (side.split([len(positives.items), drawn.numel()]) for side in (items.vectors, items.learnt))
        positive = (users.vectors * liked[0]).sum(dim=1).float()
        negative = self._negative(users.vectors, liked[1], drawn)
        found = self._compare(positive, negative, positives, drawn)
        if self.training and self.regularization:
            lengths = _squared(others[1]).view(drawn.shape)
            mean = lengths.mean(dim=1) if drawn.dim() == 2 else lengths.mean()
            found = found + self.regularization * (_squared(users.learnt) + _squared(others[0]) + mean)
        return positives.mean(found)

    def _draw(self, positives: Positives) -> Tensor:
        """Draw items for each positive, shape (P, N), or for all of them, (N,)."""
        if self.rule == "softmax":
            return self.catalogue.draw(self.negatives)
        if self.options.avoid_positives:
            return self.catalogue.draw_for(positives.users, self.negatives)
        return self.catalogue.draw(len(positives.users), self.negatives)

    def _negative(self, users: Tensor, vectors: Tensor, drawn: Tensor) -> Tensor:
        """Return the scores of drawn items for users, from their vectors; shape (P, N)."""
        if drawn.dim() == 2:
            return (vectors.view(*drawn.shape, vectors.shape[1]) @ users.unsqueeze(2)).squeeze(2).float()
        return (users @ vectors.T).float()

    def _compare(self, positive: Tensor, negative: Tensor, positives: Positives, drawn: Tensor) -> Tensor:
        """Return the loss of each positive, from its score and those of what was drawn for it; shape (P,)."""
        if self.rule == "bpr":
            return losses.bpr(positive, negative)
        if self.rule == "warp":
            return losses.warp(positive, negative, num_items=len(self.catalogue))
        expected = torch.full(drawn.shape, len(drawn) / len(self.catalogue), device=drawn.device)
        if self.options.avoid_positives:
            left_out = self.catalogue.liked(positives.users, drawn)
        else:
            left_out = drawn == positives.items.unsqueeze(1)
        return sampled_softmax(positive, negative, expected.log(), left_out)


def _squared(rows: Tensor) -> Tensor:
    """Return the squared length of each row, float32, shape (B,)."""
    return rows.float().square().sum(dim=1)
