"""Batch normalization synchronized over ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.models.all_gather import AllGatherModule, Gather


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
