"""Chronological user histories on the device, and batches of windows of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST, PADDING
from recsys_cli.interactions import Interactions
from recsys_cli.models.sequence.jagged import Jagged


@dataclass(frozen=True)
class Windows:
    """A window of each of B histories.

    Attributes:
        items: Chronological items of all windows, packed one after the other; an empty window has one place with padding. Shape
            (T,), int64.
        counts: Number of items of each, 0 and more.
        times: Times of the items, float64, shape (T,), anything at padding; None unless the model reads them.
        weights: Weights of the items as targets, float32, shape (T,), anything at padding; None for ones.
    """

    items: Tensor
    counts: Tensor
    times: Tensor | None = None
    weights: Tensor | None = None

    @cached_property
    def layout(self) -> Jagged:
        """Layout of the places."""
        return Jagged(self.counts.clamp(min=1))


@dataclass(frozen=True)
class Histories:
    """The items of all users, without cold-start users and items, as these share one id each.

    Attributes:
        items: Items ordered by (user, time, row number), int32, shape (N,).
        offsets: Start of each user's items, then N; int64, shape (users + 1,).
        times: Times of the items in the unit of the data, float64, shape (N,); None unless wanted.
        weights: Weights of the items as targets, float32, shape (N,); None for ones.
    """

    items: Tensor
    offsets: Tensor
    times: Tensor | None = None
    weights: Tensor | None = None

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
        times = weights = None
        if with_times and kept.times is not None:
            times = torch.from_numpy(kept.times[order].astype(np.float64)).to(device)
        if kept.weights is not None:
            weights = torch.from_numpy(kept.weights[order]).to(device)
        return cls(torch.from_numpy(items[order]).to(device), torch.from_numpy(offsets).to(device), times, weights)

    def last(self, users: Tensor, length: int) -> Windows:
        """Return the latest items of users, shape (B,), at most `length`, which is 2 or more."""
        users = users.long()
        ends = self.offsets[users + 1]
        return self._windows(torch.maximum(self.offsets[users], ends - length), ends)

    def random_windows(self, users: Tensor, length: int) -> Windows:
        """Return a window of each user's items, at most `length`, at a random start where there are more."""
        users = users.long()
        starts, ends = self.offsets[users], self.offsets[users + 1]
        choices = (ends - starts - length).clamp(min=0) + 1
        starts = starts + (torch.rand(len(users), device=users.device, dtype=torch.float64) * choices).long()
        return self._windows(starts, torch.minimum(starts + length, ends))

    def longest_first(self, users: Tensor) -> Tensor:
        """Return the order of users, shape (B,), by descending number of items."""
        return self.offsets.diff()[users.long()].argsort(descending=True, stable=True)

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

    def _windows(self, starts: Tensor, ends: Tensor) -> Windows:
        counts = ends - starts
        layout = Jagged(counts.clamp(min=1))
        if not len(self.items):
            times, weights = (
                None if values is None else values.new_zeros(len(starts)) for values in (self.times, self.weights)
            )
            return Windows(counts.new_zeros(len(starts)), counts, times, weights)
        places = (starts[layout.rows] + layout.positions).clamp_(max=len(self.items) - 1)
        items = self.items[places].long().masked_fill_((counts == 0)[layout.rows], PADDING)
        times, weights = (None if values is None else values[places] for values in (self.times, self.weights))
        return Windows(items, counts, times, weights)
