"""Losses of positives against sampled negatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from recsys_cli.models.retrieval import losses
from recsys_cli.models.retrieval.item_catalog import ItemCatalog
from recsys_cli.models.retrieval.options import NegativeSamplingOptions
from recsys_cli.models.sequence.losses import SampledSoftmax, losses_of_rows

Loss = Literal["bpr", "warp", "softmax"]
_NEGATIVES: Mapping[Loss, int] = {"bpr": 1, "warp": 20, "softmax": 512}
_REGULARIZATION: Mapping[Loss, float] = {"bpr": 0.002, "warp": 0.05, "softmax": 0.05}


@dataclass(frozen=True)
class Positives:
    """The P positive rows of a batch: encoded ids, int64, and label times row weight, float32; shape (P,) each.

    `num_rows` is B, all rows of the batch, the divisor of the mean.
    """

    users: Tensor
    items: Tensor
    weight: Tensor
    num_rows: int

    def mean(self, losses: Tensor) -> Tensor:
        """Return the mean over all rows of weight * loss, float32, from a loss per positive; 0 without rows."""
        return (losses.float() * self.weight).sum() / max(self.num_rows, 1)


@dataclass(frozen=True)
class Encoded:
    """Vectors of users or items, shape (B, D), and their embedding rows under the L2 penalty, shape (B, D')."""

    vectors: Tensor
    penalized: Tensor


Encode = Callable[[Tensor, Tensor], tuple[Encoded, Encoded]]


class NegativeSampling:
    """One of `losses` over sampled negatives, and the L2 penalty of the embeddings."""

    def __init__(self, options: NegativeSamplingOptions, rule: Loss) -> None:
        self.rule = rule
        self.negatives = options.num_negatives or _NEGATIVES[rule]
        self.filter_false_negatives = options.filter_false_negatives
        given = options.regularization
        self.regularization = _REGULARIZATION[rule] if given is None else given

    def loss(self, positives: Positives, catalog: ItemCatalog, encode: Encode, *, penalize: bool) -> Tensor:
        """Return the mean over the batch's rows of weight * loss, a float32 scalar, with the L2 penalty if `penalize`."""
        negatives = self._sample(positives, catalog)
        # One lookup of all items reads each distinct row, and gives it a gradient, once.
        users, items = encode(positives.users, torch.cat([positives.items, negatives.flatten()]))
        sizes = [len(positives.items), negatives.numel()]
        vectors, penalized = (part.split(sizes) for part in (items.vectors, items.penalized))
        positive = (users.vectors * vectors[0]).sum(dim=1).float()
        negative = _negative_scores(users.vectors, vectors[1], negatives)
        losses_of_rows = self._compare(positive, negative, positives, negatives, catalog)
        if penalize and self.regularization:
            lengths = _squared(penalized[1]).view(negatives.shape)
            mean = lengths.mean(dim=1) if negatives.dim() == 2 else lengths.mean()
            penalty = self.regularization * (_squared(users.penalized) + _squared(penalized[0]) + mean)
            losses_of_rows = losses_of_rows + penalty
        return positives.mean(losses_of_rows)

    def _sample(self, positives: Positives, catalog: ItemCatalog) -> Tensor:
        """Sample negatives for each positive, shape (P, N), or shared by all, shape (N,)."""
        if self.rule == "softmax":
            return catalog.sample(self.negatives)
        if self.filter_false_negatives:
            return catalog.sample_for(positives.users, self.negatives)
        return catalog.sample(len(positives.users), self.negatives)

    def _compare(
        self, positive: Tensor, negative: Tensor, positives: Positives, negatives: Tensor, catalog: ItemCatalog
    ) -> Tensor:
        """Return the loss of each positive; shape (P,)."""
        if self.rule == "bpr":
            return losses.bpr(positive, negative)
        if self.rule == "warp":
            return losses.warp(positive, negative, num_items=len(catalog))
        expected = torch.full(negatives.shape, len(negatives) / len(catalog), device=negatives.device)
        same = positives.items.unsqueeze(1)
        masked = catalog.positives(positives.users, negatives) if self.filter_false_negatives else negatives == same
        return losses_of_rows(SampledSoftmax(expected.log()), positive, negative, masked)


def _negative_scores(users: Tensor, vectors: Tensor, negatives: Tensor) -> Tensor:
    """Return the scores of negatives; shape (P, N)."""
    if negatives.dim() == 2:
        return (vectors.view(*negatives.shape, vectors.shape[1]) @ users.unsqueeze(2)).squeeze(2).float()
    return (users @ vectors.T).float()


def _squared(rows: Tensor) -> Tensor:
    return rows.float().square().sum(dim=1)
