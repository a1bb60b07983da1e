"""Chronological user histories on the device, and batches of windows of them."""

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
    """A window of each of B histories.

    Attributes:
        items: Chronological items, padded at the end; shape (B, W), int64. W is the longest window, and at least 2.
        counts: Number of items, 0 to W.
    """

    items: Tensor
    counts: Tensor

    @property
    def mask(self) -> Tensor:
        """Mask of items, False at padding; bool, shape (B, W)."""
        return length_mask(self.counts, self.items.shape[1])


@dataclass(frozen=True)
class Histories:
    """The items of all users, without cold-start users and items, as these share one id each.

    Attributes:
        items: Items ordered by (user, time, row number), int32, shape (N,).
        offsets: Start of each user's items, then N; int64, shape (users + 1,).
    """

    items: Tensor
    offsets: Tensor

    @classmethod
    def of(
        cls, interactions: Interactions, *, num_users: int, positive_only: bool, device: torch.device | str = "cpu"
    ) -> Self:
        """Sort interactions into histories; `positive_only` keeps `Interactions.positive`.

        Raises:
            ConfigError: The interactions have no timestamps.
        """
        if interactions.times is None:
            raise ConfigError(
                "a sequence model needs timestamps, and the prepared data has none",
                hint="set features.timestamp, then run `recsys etl`; or choose a model without order (recsys ls models)",
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
        """Return the latest items of users, shape (B,), at most `length`, which is 2 or more."""
        users = users.long()
        ends = self.offsets[users + 1]
        return self._windows(torch.maximum(self.offsets[users], ends - length), ends, length)

    def random_windows(self, users: Tensor, length: int) -> Windows:
        """Return a window of each user's items, at most `length`, at a random start where there are more."""
        users = users.long()
        starts, ends = self.offsets[users], self.offsets[users + 1]
        choices = (ends - starts - length).clamp(min=0) + 1
        starts = starts + (torch.rand(len(users), device=users.device, dtype=torch.float64) * choices).long()
        return self._windows(starts, torch.minimum(starts + length, ends), length)

    def mean_count(self, length: int) -> float:
        """Return the mean number of items in a window of `length`, over users with at least two items."""
        counts = self.offsets.diff()
        counts = counts[counts >= 2].clamp(max=length)
        return float(counts.double().mean()) if len(counts) else float(length)

    def _windows(self, starts: Tensor, ends: Tensor, length: int) -> Windows:
        counts = ends - starts
        width = min(length, max(2, int(counts.max()))) if len(counts) else length
        if not len(self.items):
            return Windows(counts.new_zeros(len(starts), width), counts)
        rows = starts.unsqueeze(1) + torch.arange(width, device=starts.device)
        items = self.items[rows.clamp(max=len(self.items) - 1)].long()
        return Windows(items.masked_fill(~length_mask(counts, width), PADDING), counts)


def length_mask(counts: Tensor, length: int) -> Tensor:
    """Return rows with True at the first `counts` positions; bool, shape (B, length)."""
    return torch.arange(length, device=counts.device) < counts.unsqueeze(1)


def first_positions(items: Tensor, candidates: Tensor) -> Tensor:
    """Return the first position of each of N items in each of B sequences, or their length if absent; shape (B, N)."""
    present, first = (items.unsqueeze(2) == candidates).view(torch.uint8).max(dim=1)
    return first.masked_fill_(present == 0, items.shape[1])
