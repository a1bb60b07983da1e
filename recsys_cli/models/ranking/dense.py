"""A dense layer that knows how its input came to be: a concatenation of table rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.models.embedding import Lookup

_RUN = 512
"""Rows whose part of a weight's gradient is computed at a time, so that they stay in a processor's cache."""


class ConcatLinear(nn.Module):
    """A dense layer over the concatenation of embeddings and numbers, which it does not build where it need not.

    The layer is linear, so W [a; b] = W_a a + W_b b: each used row of a table is multiplied once, however often the batch
    repeats it, and what is spread over the batch has the width of the output instead of that of the embeddings.

    Args:
        dims: Widths of the embeddings, in the order in which the lookups come.
        num_numeric: How many numbers follow them.
        width: Outputs.
    """

    def __init__(self, dims: Sequence[int], num_numeric: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(sum(dims) + num_numeric, width)
        self.widths = [*dims, num_numeric]

    def forward(self, lookups: Sequence[Lookup], numeric: Tensor, *, dropout: nn.Module | None = None) -> Tensor:
        """Return the layer's output, shape (B, width).

        Args:
            lookups: The embeddings.
            numeric: The numbers, shape (B, num_numeric).
            dropout: What drops elements of the embeddings, for each row of the batch on its own; None drops none.
        """
        if dropout is not None:
            spread = [dropout(lookup.spread()) for lookup in lookups]
            together: Tensor = self.linear(torch.cat([*spread, numeric], dim=1))
            return together
        *weights, numeric_weight = self.linear.weight.split(self.widths, dim=1)
        output = F.linear(numeric, numeric_weight, self.linear.bias)
        for lookup, weight in zip(lookups, weights, strict=True):
            output = output + lookup.map(partial(_product, weight=weight)).spread()
        return output


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """Return `F.linear(rows, weight)`."""
    if rows.device.type != "cpu" or torch.is_autocast_enabled("cpu") or not torch.is_grad_enabled():
        return F.linear(rows, weight)
    product: Tensor = _Product.apply(rows, weight)
    return product


class _Product(torch.autograd.Function):
    """Many rows times a part of a weight, in shapes that a CPU's matrix library is fast at: a fifth less time than F.linear."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return rows @ weight.t().contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        (gradient,) = gradients
        rows, weight = ctx.saved_tensors
        by_weight = torch.zeros_like(weight, memory_format=torch.contiguous_format)
        for some, some_gradient in zip(rows.split(_RUN), gradient.split(_RUN), strict=True):
            by_weight.addmm_(some_gradient.t(), some)
        return gradient @ weight if ctx.needs_input_grad[0] else None, by_weight
