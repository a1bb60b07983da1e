"""All-gather for modules over the rows of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Gather = Callable[[Tensor], Tensor]
"""Collective: takes a tensor of the same shape on all ranks; returns all of them, stacked in a new first dimension."""


class AllGatherModule:
    """Mixin of modules over all rows of a step, on all ranks, in training; `gather` is None for a single process."""

    gather: Gather | None = None
    rank: int = 0


class AllGatherRows(nn.Module, AllGatherModule):
    """Rows of a step from all ranks, for losses with in-batch negatives."""

    def forward(self, *columns: Tensor) -> tuple[Sequence[Tensor], int]:
        """Return the rows of all ranks in rank order, for columns of shape (n, ...), and the number of rows before this rank's.

        Gradients flow back to the rank of the row. Collective: every rank calls this in every step and runs the
        backward pass, also without rows.
        """
        if not self.training or self.gather is None:
            return columns, 0
        counts = self.gather(torch.tensor(len(columns[0]))).tolist()
        gathered = [_GatherFunction.apply(column, counts, self.rank, self.gather) for column in columns]
        return gathered, sum(counts[: self.rank])


class _GatherFunction(torch.autograd.Function):
    """All-gather of rows; the gradient of a row is the sum of its gradients on all ranks."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: Sequence[int], rank: int, gather: Gather) -> Tensor:
        ctx.gather, ctx.first, ctx.number = gather, sum(counts[:rank]), counts[rank]
        longest = rows.new_zeros((max(1, *counts), *rows.shape[1:]))  # messages need one size on all ranks, and not 0
        longest[: len(rows)] = rows
        return torch.cat([part[:count] for part, count in zip(gather(longest), counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.gather(gradients[0].contiguous()).sum(0)[ctx.first : ctx.first + ctx.number], None, None, None
