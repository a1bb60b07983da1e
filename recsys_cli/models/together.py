"""What processes that train together compute together: how a module is told of the others, and the rows of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Gather = Callable[[Tensor], Tensor]
"""Takes a tensor of one shape everywhere and returns those of all processes, one after the other in a new first dimension."""


class Together:
    """What a module is, beside a module, that looks at all rows of a step although each process has a piece of them.

    It does so in training alone: pieces of a validation split are measured by each process for itself.

    Attributes:
        gather: How processes tell each other what they have. None is a process alone.
        rank: Which process this is.
    """

    gather: Gather | None = None
    rank: int = 0


class AllRows(nn.Module, Together):
    """Rows of a step, of all processes: for a loss that compares each row with all others."""

    def forward(self, *columns: Tensor) -> tuple[Sequence[Tensor], int]:
        """Return what all processes have, in the order of the processes, and how many rows of others come before the own ones.

        A gradient goes back to the process that a row came from. Every process has to call this in every step and let a gradient
        come back, also where it has no rows.

        Args:
            columns: Each of shape (n, ...), n being the number of rows here.
        """
        if not self.training or self.gather is None:
            return columns, 0
        counts = self.gather(torch.tensor(len(columns[0]))).tolist()
        together = [_OfAll.apply(column, counts, self.rank, self.gather) for column in columns]
        return together, sum(counts[: self.rank])


class _OfAll(torch.autograd.Function):
    """The rows of all; the gradient of a row is the sum of what all processes have for it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: Sequence[int], rank: int, gather: Gather) -> Tensor:
        ctx.gather, ctx.first, ctx.number = gather, sum(counts[:rank]), counts[rank]
        longest = rows.new_zeros((max(1, *counts), *rows.shape[1:]))  # messages have to be of one size, and not empty
        longest[: len(rows)] = rows
        return torch.cat([part[:count] for part, count in zip(gather(longest), counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.gather(gradients[0].contiguous()).sum(0)[ctx.first : ctx.first + ctx.number], None, None, None
