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
        times: Times of the items, float64, shape (B, W), anything at padding; None unless the model reads them.
    """

    items: Tensor
    counts: Tensor
    times: Tensor | None = None

    @property
    def mask(self) -> Tensor:
        """Mask of items, False at padding; bool, shape (B, W)."""
        return length_mask(self.counts, self.items.shape[1])

    def rows(self, rows: slice) -> Windows:
        """Return the windows of some users."""
        return Windows(self.items[rows], self.counts[rows], None if self.times is None else self.times[rows])


@dataclass(frozen=True)
class Histories:
    """The items of all users, without cold-start users and items, as these share one id each.

    Attributes:
        items: Items ordered by (user, time, row number), int32, shape (N,).
        offsets: Start of each user's items, then N; int64, shape (users + 1,).
        times: Times of the items in the unit of the data, float64, shape (N,); None unless wanted.
    """

    items: Tensor
    offsets: Tensor
    times: Tensor | None = None

    @classmethod
    def of(
        cls,
        interactions: Interactions,
        *,
        num_users: int,
        positive_only: bool,
        with_times: bool = False,
        device: torch.device | str = "cpu",
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
        times = None
        if with_times and kept.times is not None:
            times = torch.from_numpy(kept.times[order].astype(np.float64)).to(device)
        return cls(torch.from_numpy(items[order]).to(device), torch.from_numpy(offsets).to(device), times)

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

    def quantile(self, share: float) -> int:
        """Return the length that a share of the histories with at least two items do not exceed; 0 without such a history."""
        counts = self.offsets.diff()
        counts = counts[counts >= 2]
        return int(counts.sort().values[round(share * (len(counts) - 1))]) if len(counts) else 0

    def _windows(self, starts: Tensor, ends: Tensor, length: int) -> Windows:
        counts = ends - starts
        width = min(length, max(2, int(counts.max()))) if len(counts) else length
        if not len(self.items):
            return Windows(counts.new_zeros(len(starts), width), counts)
        rows = starts.unsqueeze(1) + torch.arange(width, device=starts.device)
        rows.clamp_(max=len(self.items) - 1)
        items = self.items[rows].long()
        times = None if self.times is None else self.times[rows]
        return Windows(items.masked_fill(~length_mask(counts, width), PADDING), counts, times)


def length_mask(counts: Tensor, length: int) -> Tensor:
    """Return rows with True at the first `counts` positions; bool, shape (B, length)."""
    return torch.arange(length, device=counts.device) < counts.unsqueeze(1)


def first_positions(items: Tensor, candidates: Tensor) -> Tensor:
    """Return the first position of each of N items in each of B sequences, or their length if absent; int32, shape (B, N).

    Memory grows with B * N, not with the length of the sequences.
    """
    length = items.shape[1]
    if not len(candidates):
        return items.new_empty(len(items), 0, dtype=torch.int32)
    inverse = slice(len(candidates))
    if bool((candidates.diff() > 0).all()):  # a whole catalog
        distinct = candidates
    else:
        distinct, inverse = torch.unique(candidates, return_inverse=True)
    columns = torch.searchsorted(distinct, items).clamp_(max=len(distinct) - 1)
    columns.masked_fill_(distinct[columns] != items, len(distinct))  # a column of its own
    positions = torch.arange(length, dtype=torch.int32, device=items.device).expand_as(items)
    first = torch.full((len(items), len(distinct) + 1), length, dtype=torch.int32, device=items.device)
    return first.scatter_reduce_(1, columns, positions, "amin")[:, inverse]
