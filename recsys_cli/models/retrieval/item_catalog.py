"""The item catalog of train, for negative sampling."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from recsys_cli.errors import DataError
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.interactions import Interactions
from recsys_cli.models.interaction_matrix import InteractionMatrix

POSITIVE = 0.5
"""Positives are rows with a label above it."""
_SHORTER = 4
"""Item audiences replace user positives as lookup lists where they are shorter by this factor."""


class ItemCatalog:
    """The items of train, `items`, ascending, and each user's positives, for sampling on a device.

    Sampling a negative needs no rejection: the index is sampled among the user's remaining items, and one binary search
    counts the user's positives before it. Without items in train a `DataError`.
    """

    def __init__(self, interactions: Interactions, user: Column, item: Column, *, device: torch.device) -> None:
        items = np.unique(interactions.item_idx)
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
