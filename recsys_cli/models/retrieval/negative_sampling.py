"""Sampled negatives of the positives of users, and their losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.errors import DataError
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.interactions import Interactions
from recsys_cli.models.configs.retrieval import NegativeSamplingOptions
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.sequence.losses import SampledSoftmax, losses_of_rows

_EULER = 0.5772156649015329
POSITIVE = 0.5
"""Positives are rows with a label above it."""
_SHORTER = 4
"""Item audiences replace user positives as lookup lists where they are shorter by this factor."""
Loss = Literal["bpr", "warp", "softmax"]
_NEGATIVES: Mapping[Loss, int] = {"bpr": 1, "warp": 20, "softmax": 512}
_REGULARIZATION: Mapping[Loss, float] = {"bpr": 0.002, "warp": 0.05, "softmax": 0.05}


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """Return -log sigmoid(positive - negative), averaged over the negatives; shape (B,).

    Rendle et al., "BPR: Bayesian personalized ranking from implicit feedback", 2009.
    """
    return F.softplus(negative - positive.unsqueeze(1)).mean(dim=1)


def warp(positive: Tensor, negative: Tensor, *, num_items: int) -> Tensor:
    """Return the hinge loss of the first violating negative, weighted by the estimated rank; shape (B,).

    A negative violates if it scores above the positive minus a margin of 1. If the n-th is the first, the estimated
    rank is r = (num_items - 1) // n, and the weight 1 + 1/2 + ... + 1/r stresses the top of the ranking. Without a
    violation the loss is 0. Weston et al., "WSABIE", 2011; here all negatives are scored at once.
    """
    above = 1 - positive.unsqueeze(1) + negative
    first = (above > 0).int().argmax(dim=1, keepdim=True)
    rank = (num_items - 1) // (first.squeeze(1) + 1)
    harmonic = torch.special.digamma(rank.double() + 1) + _EULER
    return harmonic.to(above.dtype) * above.gather(1, first).squeeze(1).clamp(min=0)


class ItemCatalog:
    """The items of train, `items`, ascending, and each user's positives, for sampling on a device.

    Sampling a negative needs no rejection: the index is sampled among the user's remaining items, and one binary search
    counts the user's positives before it. Without items in train a `DataError`.
    """

    def __init__(self, interactions: Interactions, user: Column, item: Column, *, device: torch.device) -> None:
        interactions = interactions.counted()
        items = np.flatnonzero(np.bincount(interactions.item_idx))
        items = items[items >= FIRST].astype(np.int64)
        if not len(items):
            raise DataError(
                "no row of train has an item in the vocabulary, so there is nothing to recommend",
                hint="lower freq_threshold of the item's Categorify in features.ops",
            )
        self.items = torch.from_numpy(items).to(device)
        self._positives = InteractionMatrix.of(interactions, user, item, positive_only=True, device=device)
        self._keys = self._negatives_before(self._positives)
        rows = interactions.item_idx[interactions.positive]
        counts = np.bincount(rows, minlength=self._positives.num_items).clip(min=1) / max(len(rows), 1)
        self._share = torch.from_numpy(counts.astype(np.float32)).to(device)

    def __len__(self) -> int:
        return self.items.numel()

    def _negatives_before(self, positives: InteractionMatrix) -> Tensor:
        """Return the number of non-positive items before each positive, combined with its user to one ascending key; shape (N,)."""
        users = positives.users
        before = torch.arange(users.numel(), device=users.device) - positives.offsets[users]
        return users * (len(self) + 1) + torch.searchsorted(self.items, positives.items) - before

    def share(self, items: Tensor) -> Tensor:
        """Return each item's share of the positives of train, at least that of one row; shape of `items`."""
        return self._share[items]

    def sample(self, *shape: int) -> Tensor:
        """Sample items uniformly."""
        return self.items[torch.randint(len(self), shape, device=self.items.device)]

    def sample_for(self, users: Tensor, number: int) -> Tensor:
        """Sample N items without a positive of each user, uniformly; any items for a user with positives of all; shape (B, N)."""
        first, last = self._positives.offsets[users].unsqueeze(1), self._positives.offsets[users + 1].unsqueeze(1)
        remaining = len(self) - (last - first)
        uniform = torch.rand((users.numel(), number), dtype=torch.float64, device=users.device)
        rank = (uniform * remaining).long()
        keys = users.unsqueeze(1) * (len(self) + 1) + rank
        skipped = torch.searchsorted(self._keys, keys, right=True) - first
        index = torch.where(remaining > 0, rank + skipped, (uniform * len(self)).long())
        return self.items[index]

    def positives(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the mask of positives of B users and C items, bool, shape (B, C)."""
        # Each distinct user is looked up once.
        distinct, inverse = torch.unique(users, return_inverse=True)
        if distinct.numel() * len(self) > _SHORTER * items.numel() * self._positives.num_users:
            pairs = _membership(self._audience, items, distinct).T.contiguous()
        else:
            pairs = _membership(self._positives, distinct, items)
        return pairs.index_select(0, inverse)

    @cached_property
    def _audience(self) -> InteractionMatrix:
        return self._positives.transpose()


def _membership(lists: InteractionMatrix, rows: Tensor, columns: Tensor) -> Tensor:
    """Return a dense submatrix, bool, shape (R, C), of given rows and columns; columns may have duplicates."""
    every = torch.arange(columns.numel(), device=columns.device)
    position = torch.full((lists.num_items,), -1, dtype=torch.int64, device=columns.device)
    position[columns] = every  # of a duplicate column, one of its positions
    chosen = lists.of_users(rows)
    row = torch.repeat_interleave(chosen.offsets.diff())
    column = position.index_select(0, chosen.values)
    present = (column >= 0).nonzero().squeeze(1)
    pairs = torch.zeros((rows.numel(), columns.numel()), dtype=torch.bool, device=columns.device)
    pairs[row.index_select(0, present), column.index_select(0, present)] = True
    filled = position[columns]
    duplicates = (filled != every).nonzero().squeeze(1)
    pairs[:, duplicates] = pairs[:, filled[duplicates]]
    return pairs


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
    """The loss of a positive over sampled negatives, and the L2 penalty of the embeddings."""

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
            return bpr(positive, negative)
        if self.rule == "warp":
            return warp(positive, negative, num_items=len(catalog))
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
