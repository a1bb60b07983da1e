"""Lazy Adam: what torch.optim.SparseAdam computes, in a fraction of its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from recsys_cli.training.rows.row_optimizer import RowOptimizer, parts


class RowAdam(RowOptimizer):
    """Adam for the rows of the batch; the others keep weights and moments, and the bias correction counts all steps.

    Equal to SparseAdam within rounding. Remembers two numbers for each number of the table.

    Args:
        params: Tables, shape (rows, D), whose gradients are sparse tensors.
        lr: Step size.
        betas: Decay of the mean of the gradients and of their squares.
        eps: Added to the root of the mean square, before its bias correction as SparseAdam does.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def remembered(self, table: Tensor) -> dict[str, Tensor]:
        """Return both moments, and how many steps there were."""
        return {
            "step": torch.zeros((), dtype=torch.float32, device=table.device),
            "exp_avg": torch.zeros_like(table),
            "exp_avg_sq": torch.zeros_like(table),
        }

    def update(
        self, table: Tensor, ids: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> None:
        """Gather rows and moments, let torch's fused Adam kernel take them for a small parameter, and write them back."""
        beta1, beta2 = options["betas"]
        # Adam adds eps after the bias correction of the mean square, SparseAdam before it.
        eps = options["eps"] / math.sqrt(1 - beta2 ** (float(state["step"]) + 1))
        tensors = (table, state["exp_avg"], state["exp_avg_sq"])
        for some, some_gradient in parts(ids, gradient):
            rows, mean, square = here = [tensor.index_select(0, some) for tensor in tensors]
            adam(
                [rows], [some_gradient], [mean], [square], [], [state["step"].clone()], fused=True,
                amsgrad=False, beta1=beta1, beta2=beta2, lr=options["lr"], weight_decay=0.0, eps=eps, maximize=False,
            )  # fmt: skip
            for tensor, values in zip(tensors, here, strict=True):
                tensor.index_copy_(0, some, values)
        state["step"].add_(1)
