"""Sequences of different lengths without the cost of padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from recsys_cli.models.sequence.histories import length_mask


@dataclass(frozen=True)
class Jagged:
    """Layout of the T items of B sequences: packed one after the other, or padded at the end to length L.

    Everything but attention works on packed items, so that its cost follows the items and not the longest sequence.

    Attributes:
        counts: Items of each sequence, at least 1; shape (B,).
        length: L.
        index: Places of the items in the flat padded batch, shape (T,); None without padding.
    """

    counts: Tensor
    length: int
    index: Tensor | None

    @classmethod
    def of(cls, counts: Tensor, length: int) -> Self:
        """Return the layout of sequences with counts of items; an empty one has its first place."""
        counts = counts.clamp(min=1)
        index = length_mask(counts, length).flatten().nonzero().squeeze(1)
        return cls(counts, length, None if len(index) == len(counts) * length else index)

    def pack(self, padded: Tensor) -> Tensor:
        """Return the items of a padded batch, shape (B, L, ...), as (T, ...)."""
        flat = padded.flatten(0, 1)
        return flat if self.index is None else flat.index_select(0, self.index)

    def pad(self, packed: Tensor) -> Tensor:
        """Return packed items, shape (T, ...), as (B, L, ...) with zeros at padding."""
        size = len(self.counts) * self.length
        if self.index is not None:
            packed = packed.new_zeros(size, *packed.shape[1:]).index_copy(0, self.index, packed)
        return packed.view(len(self.counts), self.length, *packed.shape[1:])
