"""Lazy Adam."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from recsys_cli.training.rows.row_optimizer import RowOptimizer, parts


class RowAdam(RowOptimizer):
    """Adam for the rows of the batch; all other rows keep weights and moments. The bias correction counts all steps.

    Equal to torch.optim.SparseAdam up to rounding, in a fraction of the time. The state takes twice the table's memory.
    """

    def __init__(self, params: Iterable[Tensor], *, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8})

    def initial_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return the step count and both moments."""
        return {
            "step": torch.zeros((), dtype=torch.float32, device=table.device),
            "exp_avg": torch.zeros_like(table),
            "exp_avg_sq": torch.zeros_like(table),
        }

    def update(
        self, table: Tensor, ids: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> None:
        """Gather rows and moments, update them with torch's fused Adam kernel, and write them back."""
        beta1, beta2 = options["betas"]
        # Adam adds eps after the bias correction of the second moment, SparseAdam before it.
        eps = options["eps"] / math.sqrt(1 - beta2 ** (float(state["step"]) + 1))
        tensors = (table, state["exp_avg"], state["exp_avg_sq"])
        for part_ids, part in parts(ids, gradient):
            rows, first, second = gathered = [tensor.index_select(0, part_ids) for tensor in tensors]
            adam(
                [rows], [part], [first], [second], [], [state["step"].clone()], fused=True,
                amsgrad=False, beta1=beta1, beta2=beta2, lr=options["lr"], weight_decay=0.0, eps=eps, maximize=False,
            )  # fmt: skip
            for tensor, values in zip(tensors, gathered, strict=True):
                tensor.index_copy_(0, part_ids, values)
        state["step"].add_(1)
