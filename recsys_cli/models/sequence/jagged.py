"""Sequences of different lengths without the cost of padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

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
