"""How lists lie in memory, and how the lists of a batch are picked out of them without a loop over rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from recsys_cli.batch import Ragged

_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Lists:
    """The lists of many rows, to pick rows from.

    Attributes:
        values: All elements one after the other, shape (N,).
        starts: Where each row's list starts, shape (R,); int32 where N allows.
        ends: Where it ends, shape (R,).
    """

    values: Tensor
    starts: Tensor
    ends: Tensor

    @classmethod
    def of(cls, values: Tensor, lengths: Tensor) -> Lists:
        """Put lists that lie one after the other into this form."""
        ends = torch.cumsum(lengths, 0, dtype=torch.int64)
        starts = ends - lengths
        dtype = torch.int32 if values.numel() < _INT32 else torch.int64
        return cls(values, starts.to(dtype), ends.to(dtype))

    @property
    def num_bytes(self) -> int:
        """The memory they take."""
        return self.values.nbytes + self.starts.nbytes + self.ends.nbytes

    def to(self, device: torch.device | str) -> Lists:
        """Return a copy on a device."""
        return Lists(self.values.to(device), self.starts.to(device), self.ends.to(device))

    def span(self, start: int, stop: int) -> Ragged:
        """Return the lists of consecutive rows."""
        starts, ends = self.starts[start:stop], self.ends[start:stop]
        first = int(starts[0]) if stop > start else 0
        last = int(ends[-1]) if stop > start else 0
        return Ragged(self.values[first:last].clone(), _offsets(ends - starts))

    def pick(self, rows: Tensor) -> Ragged:
        """Return the lists of some rows, in their order.

        The position of each element is a running sum: it goes up by one inside a list, and from the end of one row's
        list to the start of the next row's where the next begins. Rows with empty lists add their jumps at one place.

        Args:
            rows: Row numbers, int32 or int64, shape (B,).
        """
        starts, ends = self.starts.index_select(0, rows), self.ends.index_select(0, rows)
        offsets = _offsets(ends - starts)
        total = int(offsets[-1])
        if total == 0:
            return Ragged(self.values[:0], offsets)
        starts[1:] -= ends[:-1]
        starts[0] -= 1
        positions = torch.ones(total + 1, dtype=starts.dtype, device=starts.device)
        positions.scatter_add_(0, offsets[:-1], starts)
        positions = torch.cumsum(positions[:total], 0, dtype=starts.dtype)
        return Ragged(self.values.index_select(0, positions), offsets)


def concat(parts: list[Ragged]) -> Ragged:
    """Join the lists of several stretches of rows."""
    offsets, end = [parts[0].offsets], parts[0].values.numel()
    for part in parts[1:]:
        offsets.append(part.offsets[1:] + end)
        end += part.values.numel()
    return Ragged(torch.cat([part.values for part in parts]), torch.cat(offsets))


def _offsets(lengths: Tensor) -> Tensor:
    offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets
