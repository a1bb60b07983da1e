"""False negatives: pairs of targets and negatives that the loss leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class FalseNegatives:
    """False negatives of P targets among N negatives, as a range of consecutive targets for each of M negatives.

    They are few of P × N pairs, and most targets share theirs with the next one: writing them is far cheaper than
    reading a mask of all pairs.

    Attributes:
        columns: Negatives, 0 to N - 1, also several times; shape (M,).
        first: First target of each, shape (M,).
        last: Target after the last one, shape (M,).
    """

    columns: Tensor
    first: Tensor
    last: Tensor

    @classmethod
    def of(cls, items: Tensor, first: Tensor, last: Tensor, negatives: Tensor) -> Self:
        """Find T items, each with its range of targets, among negatives with repeats, shape (N,)."""
        values, order = negatives.sort()
        low = torch.searchsorted(values, items)
        which, number = _expand(torch.searchsorted(values, items, right=True) - low)
        return cls(order[low[which] + number], first[which], last[which])

    def of_block(self, block: slice, width: int) -> Tensor:
        """Return the places of the false negatives of a block of targets in its flat scores, shape (targets, width)."""
        first = self.first.clamp(min=block.start)
        which, number = _expand((self.last.clamp(max=block.stop) - first).clamp_(min=0))
        return (first - block.start)[which].add_(number).mul_(width).add_(self.columns[which])


def repeats(items: Tensor, rows: Tensor) -> Tensor:
    """Return whether the same item comes earlier in the same sequence, bool, shape (T,), of T items of sequences, shape (T,)."""
    keys, order = (rows * (items.max() + 1) + items).sort(stable=True)
    found = torch.zeros_like(items, dtype=torch.bool)
    found[order[1:]] = keys[1:] == keys[:-1]
    return found


def _expand(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return each index `count` times, and the number of each repetition from 0; both of shape (sum of counts,)."""
    which = torch.repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    return which, torch.arange(len(which), device=counts.device) - starts[which]
