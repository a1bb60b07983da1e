"""The item catalog of train, with the positives of each user, for negative sampling."""

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
"""A row with a label above it is a positive."""
_SHORTER = 4
"""Lists of items' users are made beside those of users' items where so much less of them is looked at."""


class ItemCatalog:
    """The items of train and the positives of each user, on the device that draws.

    Drawing an item that a user has no positive of needs no second try: of the free places in the catalog one is drawn by its
    number, and one binary search tells how many of the user's positives lie before it.

    Args:
        interactions: Of train.
        user: The column of users.
        item: The column of items.
        device: Where to draw.

    Attributes:
        items: Those with an id of their own and a row in train, ascending; shape (I,), int64.

    Raises:
        DataError: There is none.
    """

    def __init__(self, interactions: Interactions, user: Column, item: Column, *, device: torch.device) -> None:
        items = np.unique(interactions.item_idx)
        items = items[items >= FIRST].astype(np.int64)
        if not len(items):
            raise DataError(
                "no row of train has an item with an id of its own, so there is nothing to recommend",
                hint="a lower freq_threshold where the item is categorified, in features.ops",
            )
        self.items = torch.from_numpy(items).to(device)
        self._positives = InteractionMatrix.of(interactions, user, item, positive_only=True, device=device)
        self._keys = self._free_before(self._positives)
        rows = interactions.item_idx[interactions.positive]
        counts = np.bincount(rows, minlength=self._positives.num_items).clip(min=1) / max(len(rows), 1)
        self._share = torch.from_numpy(counts.astype(np.float32)).to(device)

    def __len__(self) -> int:
        return self.items.numel()

    def _free_before(self, positives: InteractionMatrix) -> Tensor:
        """Return for each positive how many free places lie before it, as one ascending key with its user; shape (N,)."""
        users = torch.arange(positives.num_users, device=self.items.device).repeat_interleave(positives.offsets.diff())
        before = torch.arange(users.numel(), device=users.device) - positives.offsets[users]
        return users * (len(self) + 1) + torch.searchsorted(self.items, positives.items) - before

    def share(self, items: Tensor) -> Tensor:
        """Return which share of the positives of train each item has, that of one row where it has none; shape as given."""
        return self._share[items]

    def draw(self, *shape: int) -> Tensor:
        """Return items, all equally likely; int64 of a shape."""
        return self.items[torch.randint(len(self), shape, device=self.items.device)]

    def draw_for(self, users: Tensor, number: int) -> Tensor:
        """Return items that users have no positive of, all those equally likely; any item for who has a positive of each.

        Args:
            users: Encoded, int64, shape (B,).
            number: N, how many for each user.

        Returns:
            Shape (B, N), int64.
        """
        first, last = self._positives.offsets[users].unsqueeze(1), self._positives.offsets[users + 1].unsqueeze(1)
        free = len(self) - (last - first)
        uniform = torch.rand((users.numel(), number), dtype=torch.float64, device=users.device)
        wanted = (uniform * free).long()
        keys = users.unsqueeze(1) * (len(self) + 1) + wanted
        skipped = torch.searchsorted(self._keys, keys, right=True) - first
        places = torch.where(free > 0, wanted + skipped, (uniform * len(self)).long())
        return self.items[places]

    def positives(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the mask of positives, bool, shape (B, C).

        Args:
            users: Encoded, int64, shape (B,).
            items: Encoded, int64, shape (C,).
        """
        # Each user is looked up once, however many rows there are of them.
        few, who = torch.unique(users, return_inverse=True)
        if few.numel() * len(self) > _SHORTER * items.numel() * self._positives.num_users:
            pairs = _common(self._audience, items, few).T.contiguous()
        else:
            pairs = _common(self._positives, few, items)
        return pairs.index_select(0, who)

    @cached_property
    def _audience(self) -> InteractionMatrix:
        return self._positives.transpose()


def _common(lists: InteractionMatrix, rows: Tensor, columns: Tensor) -> Tensor:
    """Return which of some ids are in which lists, bool, shape (R, C).

    Args:
        lists: Of ids.
        rows: Which lists, shape (R,).
        columns: Which ids, shape (C,).
    """
    every = torch.arange(columns.numel(), device=columns.device)
    place = torch.full((lists.num_items,), -1, dtype=torch.int64, device=columns.device)
    place[columns] = every  # of an id that is there several times, one of them
    chosen = lists.of_users(rows)
    row = torch.repeat_interleave(chosen.offsets.diff())
    found = place.index_select(0, chosen.values)
    there = (found >= 0).nonzero().squeeze(1)
    pairs = torch.zeros((rows.numel(), columns.numel()), dtype=torch.bool, device=columns.device)
    pairs[row.index_select(0, there), found.index_select(0, there)] = True
    filled = place[columns]
    again = (filled != every).nonzero().squeeze(1)
    pairs[:, again] = pairs[:, filled[again]]
    return pairs
