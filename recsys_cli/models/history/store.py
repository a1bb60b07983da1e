"""User histories on the device, cut off at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST, PADDING
from recsys_cli.interactions import Interactions

NO_TIMES = (
    "set features.timestamp, then run `recsys etl`; or name a list column with the histories in model.history.column"
)


@dataclass(frozen=True)
class Window:
    """The latest items of each of B histories, oldest first.

    Attributes:
        items: Encoded items, 0 at padding; int64, shape (B, L).
        mask: False at padding; shape (B, L).
        is_positive: Whether an item's interaction is positive; shape (B, L).
    """

    items: Tensor
    mask: Tensor
    is_positive: Tensor


@dataclass(frozen=True)
class UserHistories:
    """The interactions of all users, without cold-start users and items.

    Attributes:
        items: Items ordered by (user, time, row number), int32, shape (N,).
        is_positive: Shape (N,).
        offsets: Start of each user's items, then N; int64, shape (users + 1,).
        moments: Distinct timestamps, ascending, shape (T,).
        keys: user * (T + 1) + index of the timestamp, ascending, int64, shape (N,).
    """

    items: Tensor
    is_positive: Tensor
    offsets: Tensor
    moments: Tensor
    keys: Tensor

    @classmethod
    def of(cls, interactions: Interactions, *, num_users: int, device: torch.device | str = "cpu") -> Self:
        """Sort interactions into histories.

        Raises:
            ConfigError: The interactions have no timestamps.
        """
        if interactions.times is None:
            raise ConfigError("model.history needs timestamps, and the prepared data has none", hint=NO_TIMES)
        users, items = interactions.user_idx, interactions.item_idx
        is_own = (users >= FIRST) & (users < num_users) & (items >= FIRST)
        kept = interactions.chosen(is_own)
        order = kept.chronological()
        offsets = np.zeros(num_users + 1, np.int64)
        np.cumsum(np.bincount(kept.user_idx, minlength=num_users), out=offsets[1:])
        assert kept.times is not None
        moments, index = np.unique(kept.times[order], return_inverse=True)
        keys = kept.user_idx[order].astype(np.int64) * (len(moments) + 1) + index
        arrays = kept.item_idx[order].astype(np.int32), kept.positive[order], offsets, moments, keys
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))

    def window(self, users: Tensor, times: Tensor | None, length: int) -> Window:
        """Return the latest items of users (B,), at most `length`, strictly before `times` (B,); all for None."""
        users = users.long()
        users = users.where((users >= 0) & (users < len(self.offsets) - 1), PADDING)
        if times is None:
            ends = self.offsets[users + 1]
        else:
            index = torch.searchsorted(self.moments, times.to(self.moments.dtype))
            ends = torch.searchsorted(self.keys, users * (len(self.moments) + 1) + index)
        starts = torch.maximum(self.offsets[users], ends - length)
        width = max(1, int((ends - starts).max())) if len(users) else 1
        rows = starts.unsqueeze(1) + torch.arange(width, device=users.device)
        mask = rows < ends.unsqueeze(1)
        if not len(self.items):
            return Window(rows.new_full(rows.shape, PADDING), mask, mask)
        rows = rows.clamp(max=len(self.items) - 1)
        return Window(self.items[rows].long().masked_fill(~mask, PADDING), mask, self.is_positive[rows] & mask)


def window_of_lists(lists: Tensor, mask: Tensor) -> Window:
    """Return a window of padded lists of items (B, L), all positive; without null, unseen and cold items."""
    mask = mask & (lists >= FIRST)
    return Window(lists.long().masked_fill(~mask, PADDING), mask, mask)
