"""Losses of positives against sampled negatives: BPR, WARP, or sampled softmax, and the L2 penalty of the embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from recsys_cli.models.retrieval import losses
from recsys_cli.models.retrieval.item_catalog import ItemCatalog
from recsys_cli.models.retrieval.options import NegativeSamplingOptions
from recsys_cli.models.sequence.negatives import sampled_softmax

Loss = Literal["bpr", "warp", "softmax"]
_NEGATIVES: Mapping[Loss, int] = {"bpr": 1, "warp": 20, "softmax": 512}
_REGULARIZATION: Mapping[Loss, float] = {"bpr": 0.002, "warp": 0.05, "softmax": 0.05}


@dataclass(frozen=True)
class Positives:
    """The positive rows of a batch.

    Attributes:
        users: Encoded, int64, shape (P,).
        items: Encoded, int64, shape (P,).
        weight: Label times weight of the row, float32, shape (P,).
        num_rows: B, all rows of the batch, the divisor of the mean.
    """

    users: Tensor
    items: Tensor
    weight: Tensor
    num_rows: int

    def mean(self, losses: Tensor) -> Tensor:
        """Return the sum of weight * loss over the number of all rows, float32, from a loss per positive; 0 of no rows."""
        return (losses.float() * self.weight).sum() / max(self.num_rows, 1)


@dataclass(frozen=True)
class Encoded:
    """Some users, or some items, as the loss takes them.

    Attributes:
        vectors: Vectors whose product is the score, shape (B, D).
        learnt: Embedding rows behind them, which `regularization` keeps short; shape (B, D').
    """

    vectors: Tensor
    learnt: Tensor


Encode = Callable[[Tensor, Tensor], tuple[Encoded, Encoded]]


class NegativeSampling:
    """One of `losses` over sampled negatives.

    Args:
        options: Number and choice of negatives, and the penalty.
        rule: The loss.
    """

    def __init__(self, options: NegativeSamplingOptions, rule: Loss) -> None:
        self.rule = rule
        self.negatives = options.num_negatives or _NEGATIVES[rule]
        self.avoid_positives = options.filter_false_negatives
        given = options.regularization
        self.regularization = _REGULARIZATION[rule] if given is None else given

    def loss(self, positives: Positives, catalog: ItemCatalog, encode: Encode, *, penalize: bool) -> Tensor:
        """Return the mean over the batch's rows of weight * loss, a float32 scalar.

        Args:
            positives: Positive rows of a batch.
            catalog: Items to sample from.
            encode: The model's `encode`.
            penalize: Whether to add the L2 penalty, as in training.
        """
        drawn = self._draw(positives, catalog)
        # All items in one lookup, so that each used row is read, and gets its gradient, once.
        users, items = encode(positives.users, torch.cat([positives.items, drawn.flatten()]))
        vectors, learnt = (part.split([len(positives.items), drawn.numel()]) for part in (items.vectors, items.learnt))
        positive = (users.vectors * vectors[0]).sum(dim=1).float()
        negative = _negative_scores(users.vectors, vectors[1], drawn)
        found = self._compare(positive, negative, positives, drawn, catalog)
        if penalize and self.regularization:
            lengths = _squared(learnt[1]).view(drawn.shape)
            mean = lengths.mean(dim=1) if drawn.dim() == 2 else lengths.mean()
            found = found + self.regularization * (_squared(users.learnt) + _squared(learnt[0]) + mean)
        return positives.mean(found)

    def _draw(self, positives: Positives, catalog: ItemCatalog) -> Tensor:
        """Sample negatives for each positive, shape (P, N), or for all of them, (N,)."""
        if self.rule == "softmax":
            return catalog.draw(self.negatives)
        if self.avoid_positives:
            return catalog.draw_for(positives.users, self.negatives)
        return catalog.draw(len(positives.users), self.negatives)

    def _compare(
        self, positive: Tensor, negative: Tensor, positives: Positives, drawn: Tensor, catalog: ItemCatalog
    ) -> Tensor:
        """Return the loss of each positive, from its score and those of its negatives; shape (P,)."""
        if self.rule == "bpr":
            return losses.bpr(positive, negative)
        if self.rule == "warp":
            return losses.warp(positive, negative, num_items=len(catalog))
        expected = torch.full(drawn.shape, len(drawn) / len(catalog), device=drawn.device)
        same = positives.items.unsqueeze(1)
        left_out = catalog.positives(positives.users, drawn) if self.avoid_positives else drawn == same
        return sampled_softmax(positive, negative, expected.log(), left_out)


def _negative_scores(users: Tensor, vectors: Tensor, drawn: Tensor) -> Tensor:
    """Return the scores of sampled items for users, from their vectors; shape (P, N)."""
    if drawn.dim() == 2:
        return (vectors.view(*drawn.shape, vectors.shape[1]) @ users.unsqueeze(2)).squeeze(2).float()
    return (users @ vectors.T).float()


def _squared(rows: Tensor) -> Tensor:
    """Return the squared length of each row, float32, shape (B,)."""
    return rows.float().square().sum(dim=1)
