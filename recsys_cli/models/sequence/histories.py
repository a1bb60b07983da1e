"""What each user met in which order: every history, one after the other, on the device, cut into windows for a whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST, PADDING
from recsys_cli.interactions import Interactions


@dataclass(frozen=True)
class Windows:
    """A stretch of each of B histories.

    Attributes:
        items: In the order of time, and padding after them; shape (B, W), int64. W is that of the longest, and at least 2.
        counts: How many items there are, from 0 to W; shape (B,).
    """

    items: Tensor
    counts: Tensor

    @property
    def there(self) -> Tensor:
        """Where there is an item; bool, shape (B, W)."""
        return within(self.counts, self.items.shape[1])


@dataclass(frozen=True)
class Histories:
    """The items of all users. Users and items that train does not know are left out: they share one id each.

    Attributes:
        items: In the order of (user, time, row number), int32, shape (N,).
        offsets: Where each user's items begin, and N at the end; int64, shape (users + 1,).
    """

    items: Tensor
    offsets: Tensor

    @classmethod
    def of(
        cls, interactions: Interactions, *, num_users: int, positive_only: bool, device: torch.device | str = "cpu"
    ) -> Self:
        """Sort interactions into histories.

        Args:
            interactions: What happened.
            num_users: Ids are below it.
            positive_only: Let only positive interactions count, as `Interactions.positive` says which these are.
            device: Where the histories are wanted.

        Raises:
            ConfigError: It is not known when they happened.
        """
        if interactions.times is None:
            raise ConfigError(
                "a model of sequences needs to know when users met items, and the prepared data has no time",
                hint="name the column in features.timestamp, then recsys etl; or train a model without order (recsys ls models)",
            )
        keep = (interactions.user_idx >= FIRST) & (interactions.item_idx >= FIRST)
        if positive_only:
            keep &= interactions.positive
        kept = interactions.chosen(keep)
        users, items, order = kept.user_idx, kept.item_idx, kept.chronological()
        offsets = np.zeros(num_users + 1, np.int64)
        np.cumsum(np.bincount(users, minlength=num_users), out=offsets[1:])
        return cls(torch.from_numpy(items[order]).to(device), torch.from_numpy(offsets).to(device))

    def last(self, users: Tensor, length: int) -> Windows:
        """Return the latest items of each user, `length` at most.

        Args:
            users: Encoded, shape (B,); none has to have a history.
            length: At least 2.
        """
        users = users.long()
        ends = self.offsets[users + 1]
        return self._windows(torch.maximum(self.offsets[users], ends - length), ends, length)

    def anywhere(self, users: Tensor, length: int) -> Windows:
        """Return a stretch of each user's items, `length` at most, drawn from torch's generator where there are more."""
        users = users.long()
        starts, ends = self.offsets[users], self.offsets[users + 1]
        places = (ends - starts - length).clamp(min=0) + 1
        starts = starts + (torch.rand(len(users), device=users.device, dtype=torch.float64) * places).long()
        return self._windows(starts, torch.minimum(starts + length, ends), length)

    def mean_count(self, length: int) -> float:
        """Return how many items a window of `length` has in the mean, over the users that have two items or more."""
        counts = self.offsets.diff()
        counts = counts[counts >= 2].clamp(max=length)
        return float(counts.double().mean()) if len(counts) else float(length)

    def _windows(self, starts: Tensor, ends: Tensor, length: int) -> Windows:
        counts = ends - starts
        width = min(length, max(2, int(counts.max()))) if len(counts) else length
        if not len(self.items):
            return Windows(counts.new_zeros(len(starts), width), counts)
        places = starts.unsqueeze(1) + torch.arange(width, device=starts.device)
        items = self.items[places.clamp(max=len(self.items) - 1)].long()
        return Windows(items.masked_fill(~within(counts, width), PADDING), counts)


def within(counts: Tensor, length: int) -> Tensor:
    """Return which of `length` places come before each count; bool, shape (B, length)."""
    return torch.arange(length, device=counts.device) < counts.unsqueeze(1)


def first_places(items: Tensor, wanted: Tensor) -> Tensor:
    """Return at which place each of B sequences has each of N items for the first time, and the length where it has not; (B, N).

    Args:
        items: Shape (B, L).
        wanted: Shape (N,).
    """
    found, first = (items.unsqueeze(2) == wanted).view(torch.uint8).max(dim=1)
    return first.masked_fill_(found == 0, items.shape[1])
