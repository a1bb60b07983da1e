"""User histories as windows, and rows of several lengths without padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import PADDING
from recsys_cli.interactions import Interactions

_SHORT = 16
"""Sequences of at most this length are similar."""


@dataclass(frozen=True)
class Group:
    """S consecutive sequences of similar lengths, padded at the end to the longest, L.

    Attributes:
        counts: Number of items of each sequence, shape (S,).
        num_items: Number of items of all.
        length: L.
        index: Places of the items in the flat padded group, shape (num_items,); None without padding.
    """

    counts: Tensor
    num_items: int
    length: int
    index: Tensor | None

    @cached_property
    def mask(self) -> Tensor | None:
        """Mask of the items, bool, shape (S, L); None without padding."""
        if self.index is None:
            return None
        return torch.arange(self.length, device=self.counts.device) < self.counts.unsqueeze(1)

    def pad(self, packed: Tensor) -> Tensor:
        """Return packed items, shape (num_items, ...), as (S, L, ...) with zeros at padding."""
        if self.index is not None:
            size = len(self.counts) * self.length
            packed = packed.new_zeros(size, *packed.shape[1:]).index_copy_(0, self.index, packed)
        return packed.unflatten(0, (len(self.counts), self.length))

    def pack(self, padded: Tensor) -> Tensor:
        """Return the items of a padded group, shape (S, L, ...), as (num_items, ...)."""
        flat = padded.flatten(0, 1)
        return flat if self.index is None else flat.index_select(0, self.index)


@dataclass(frozen=True)
class Jagged:
    """Layout of the T items of B sequences, packed one after the other, shape (T, ...).

    Only attention needs padded sequences, and it gets them in groups of similar lengths: time and memory follow the
    items and not the longest sequence. Sequences in order of length make few groups.

    Attributes:
        counts: Number of items of each sequence, at least 1 (of a selection, 0); shape (B,).
        similarity: Length of the shortest sequence of a group by that of the longest, or more.
        given_runs: Sequences of each group; None: by similarity.
    """

    counts: Tensor
    similarity: float = 0.75
    given_runs: tuple[slice, ...] | None = None

    @cached_property
    def offsets(self) -> Tensor:
        """Start of each sequence, then T; shape (B + 1,)."""
        return torch.nn.functional.pad(self.counts.cumsum(0), (1, 0))

    @cached_property
    def rows(self) -> Tensor:
        """Sequence of each item; shape (T,)."""
        return torch.repeat_interleave(self.counts)

    @cached_property
    def positions(self) -> Tensor:
        """Position of each item in its sequence, from 0; shape (T,)."""
        return torch.arange(len(self.rows), device=self.counts.device) - self.offsets[self.rows]

    @cached_property
    def last(self) -> Tensor:
        """Place of the last item of each sequence; shape (B,)."""
        return self.offsets[1:] - 1

    @cached_property
    def runs(self) -> tuple[slice, ...]:
        """Sequences of each group, in order."""
        return self.given_runs or tuple(_runs(self.counts.tolist(), self.similarity))

    def select(self, at: Tensor) -> Jagged:
        """Return the layout of some of the items, at ascending places, shape (P,), with the same sequences in each group."""
        return Jagged(torch.bincount(self.rows[at], minlength=len(self.counts)), given_runs=self.runs)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Groups of similar lengths, in order."""
        lengths, groups, start = self.counts.tolist(), [], 0
        for rows in self.runs:
            stop, length = start + sum(lengths[rows]), max(1, *lengths[rows])
            index = None
            if stop - start < length * (rows.stop - rows.start):
                index = (self.rows[start:stop] - rows.start) * length + self.positions[start:stop]
            groups.append(Group(self.counts[rows], stop - start, length, index))
            start = stop
        return tuple(groups)

    def map(self, function: Callable[..., Tensor], *packed: Tensor) -> Tensor:
        """Apply a function to each padded group of some tensors, shape (T, ...) each.

        Args:
            function: Takes a group, and its padded items by tensor, shape (S, L, ...); returns (S, L, D).
            packed: Packed items.

        Returns:
            The packed values, shape (T, D).
        """
        return self.packed(map(function, self.groups, *map(self.padded, packed)))

    def padded(self, packed: Tensor) -> Iterator[Tensor]:
        """Yield the padded items of each group, shape (S, L, ...), from packed ones, shape (T, ...)."""
        parts = packed.split([group.num_items for group in self.groups])  # one gradient for all groups
        yield from (group.pad(part) for group, part in zip(self.groups, parts, strict=True))

    def packed(self, groups: Iterable[Tensor]) -> Tensor:
        """Return the packed items, shape (T, ...), of padded groups, shape (S, L, ...) each."""
        values = [group.pack(padded) for group, padded in zip(self.groups, groups, strict=True)]
        return values[0] if len(values) == 1 else torch.cat(values)


def _runs(lengths: Sequence[int], similarity: float) -> Iterator[slice]:
    """Yield the longest runs of similar lengths."""
    start, low, high = 0, lengths[0], lengths[0]
    for row, length in enumerate(lengths):
        low, high = min(low, length), max(high, length)
        if high > _SHORT and low < similarity * high:
            yield slice(start, row)
            start, low, high = row, length, length
    yield slice(start, len(lengths))


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
        kept = interactions.chosen(interactions.positive) if positive_only else interactions
        rows, offsets = kept.by_user(num_users)
        assert rows.times is not None
        times = rows.times.astype(np.float64) if with_times else None
        arrays = rows.item_idx, offsets, times, rows.weights
        return cls(*(None if array is None else torch.from_numpy(array).to(device) for array in arrays))  # type: ignore[arg-type]

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
