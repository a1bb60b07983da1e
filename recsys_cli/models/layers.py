"""Layers with equal results for any number of processes: BatchNorm over all rows, and dropout by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.features.hashing import mix

Gather = Callable[[Tensor], Tensor]
"""Collective: takes a tensor of the same shape on all ranks; returns all of them, stacked in a new first dimension."""
_BITS = 16
_PER_NUMBER = 64 // _BITS


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


class BatchNorm(nn.BatchNorm1d, AllGatherModule):
    """Batch normalization for batches of any size, as the last of an epoch may have one row.

    A single row has no variance: it is normalized with the running statistics, without updating them. On several ranks
    mean and variance are those of all rows; a rank may have none. torch.nn.SyncBatchNorm supports GPUs only.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the normalized rows; shape (B, D)."""
        if self.training and self.gather is not None:
            return self._synchronized(inputs, self.gather)
        if self.training and inputs.shape[0] == 1:
            return F.batch_norm(inputs, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(inputs)

    def _synchronized(self, inputs: Tensor, gather: Gather) -> Tensor:
        running_mean, running_var = self.get_buffer("running_mean"), self.get_buffer("running_var")
        rows, mean, variance = _statistics(inputs.detach().float(), gather)
        several = rows > 1  # a tensor, because reading the value would synchronize with the GPU
        mean, variance = torch.where(several, mean, running_mean), torch.where(several, variance, running_var)
        outputs: Tensor = _Normalize.apply(
            inputs, self.weight, self.bias, mean, variance, several / rows, self.eps, gather
        )
        with torch.no_grad():
            momentum = several * (self.momentum or 0.0)
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(variance * (rows / (rows - 1).clamp(min=1)), momentum)
            self.get_buffer("num_batches_tracked").add_(several)
        return outputs


def _statistics(inputs: Tensor, gather: Gather) -> tuple[Tensor, Tensor, Tensor]:
    """Return number, mean and variance of the rows of all ranks.

    Merged from the ranks' statistics without cancellation, as in Chan, Golub and LeVeque, "Updating formulae and a
    pairwise algorithm for computing sample variances" (1979).
    """
    rows, width = inputs.shape
    own = torch.zeros((1 + 2 * width,), device=inputs.device)
    if rows:
        variance, mean = torch.var_mean(inputs, 0, correction=0)
        own = torch.cat([own[:1] + rows, mean, variance * rows])
    counts, means, squares = gather(own).split([1, width, width], dim=1)
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    return total, mean, (squares + counts * (means - mean).square()).sum(0) / total


class _Normalize(torch.autograd.Function):
    """`(inputs - mean) / sqrt(variance + eps) * weight + bias`, with mean and variance over the inputs of all ranks.

    `share` is 1 / rows of all ranks, or 0 if mean and variance are constants.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
        mean, variance, share, eps, ctx.gather = rest
        ctx.save_for_backward(inputs, weight, mean, torch.rsqrt(variance + eps), share)
        return F.batch_norm(inputs, mean, variance, weight, bias, eps=eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, mean, scale, share = ctx.saved_tensors
        gradient = gradients[0].float()
        normalized = (inputs.float() - mean) * scale
        of_bias, of_weight = gradient.sum(0), (gradient * normalized).sum(0)
        lost_mean, lost_scale = (ctx.gather(torch.cat([of_bias, of_weight])).sum(0) * share).chunk(2)
        gradient = (gradient - lost_mean - normalized * lost_scale) * (weight * scale)
        return gradient.to(inputs.dtype), of_weight, of_bias, None, None, None, None, None


class Dropout(nn.Dropout):
    """Dropout with reproducible masks per row.

    On a CPU one 64-bit random number serves four elements with 16 bits each: the rate is exact to 1 / 65,536. After
    `seed_rows`, numbers come from the row's index in its step, not from torch's generator: a row has the same mask on
    any rank and in any part of the step.
    """

    _key: int | None = None
    _first_row = 0
    _calls = 0

    def seed_rows(self, key: int, first_row: int) -> None:
        """Derive masks from a key of the step and module, the calls since, and row indices from `first_row` in the step."""
        self._key, self._first_row, self._calls = key, first_row, 0

    def forward(self, values: Tensor) -> Tensor:
        """Return the values with dropout; any shape with rows first."""
        if not self.training or not self.p:
            return values
        if values.device.type != "cpu":
            return super().forward(values)
        if self._key is None:
            count = values.numel()
            numbers = torch.empty(-(-count // _PER_NUMBER), dtype=torch.int64).random_(-(1 << 63), None)
            bits = numbers.view(torch.int16)[:count].view(values.shape)
        else:
            self._calls += 1
            bits = self._bits_of_rows(values.shape, mix(self._key, self._calls))
        lowest = round(self.p * (1 << _BITS))
        kept = bits >= lowest - (1 << (_BITS - 1))
        scale = (1 << _BITS) / ((1 << _BITS) - lowest) if lowest < 1 << _BITS else 0.0
        return values * kept.to(values.dtype).mul_(scale)

    def _bits_of_rows(self, shape: torch.Size, key: int) -> Tensor:
        """Return random int16 of a shape: the section of these rows in the random sequence of the whole step."""
        num_rows, width = shape[0], shape[1:].numel()
        per_row = -(-width // _PER_NUMBER)
        numbers = np.random.PCG64DXSM(key).advance(self._first_row * per_row).random_raw(num_rows * per_row)
        bits = torch.from_numpy(numbers.view(np.int16))
        if width == per_row * _PER_NUMBER:
            return bits.view(shape)
        return bits.view(num_rows, per_row * _PER_NUMBER)[:, :width].reshape(shape)
