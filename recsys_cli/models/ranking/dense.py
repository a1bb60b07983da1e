"""A dense layer over concatenated embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.models.embedding import Lookup

_BLOCK = 512
"""Rows per block of a weight gradient, to stay in the CPU cache."""


class ConcatLinear(nn.Module):
    """A dense layer over the concatenation of embeddings and numeric features, built only if dropout requires it.

    By linearity W [a; b] = W_a a + W_b b: each distinct row of a table is multiplied once, and its product spread over
    the batch.
    """

    def __init__(self, dims: Sequence[int], num_numeric: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(sum(dims) + num_numeric, width)
        self.widths = [*dims, num_numeric]

    def forward(self, lookups: Sequence[Lookup], numeric: Tensor, *, dropout: nn.Module | None = None) -> Tensor:
        """Return the layer's output, shape (B, width); dropout of embeddings is separate for each row of the batch."""
        if dropout is not None:
            spread = [dropout(lookup.spread()) for lookup in lookups]
            concatenated: Tensor = self.linear(torch.cat([*spread, numeric], dim=1))
            return concatenated
        *weights, numeric_weight = self.linear.weight.split(self.widths, dim=1)
        output = F.linear(numeric, numeric_weight, self.linear.bias)
        for lookup, weight in zip(lookups, weights, strict=True):
            output = output + lookup.map(partial(_product, weight=weight)).spread()
        return output


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """`F.linear(rows, weight)`."""
    if rows.device.type != "cpu" or torch.is_autocast_enabled("cpu") or not torch.is_grad_enabled():
        return F.linear(rows, weight)
    product: Tensor = _Product.apply(rows, weight)
    return product


class _Product(torch.autograd.Function):
    """Many rows times a part of a weight, in shapes suited to CPU matrix libraries: a fifth less time than F.linear."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return rows @ weight.t().contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        (gradient,) = gradients
        rows, weight = ctx.saved_tensors
        by_weight = torch.zeros_like(weight, memory_format=torch.contiguous_format)
        for block, block_gradient in zip(rows.split(_BLOCK), gradient.split(_BLOCK), strict=True):
            by_weight.addmm_(block_gradient.t(), block)
        return gradient @ weight if ctx.needs_input_grad[0] else None, by_weight
