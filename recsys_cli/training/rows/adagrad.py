"""Row-wise Adagrad, the usual optimizer of large embedding tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from recsys_cli.training.rows import fbgemm
from recsys_cli.training.rows.row_optimizer import RowOptimizer, parts


class RowAdagrad(RowOptimizer):
    """Adagrad with one accumulator per row: s += mean(g²) over the D elements of the row, w -= lr · g / (√s + eps).

    The rule of FBGEMM (EXACT_ROWWISE_ADAGRAD) and DLRM, equal up to rounding. Rare rows keep large steps.
    """

    def __init__(self, params: Iterable[Tensor], *, lr: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr, "eps": 1e-8})

    def initial_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return the sum of mean squares, shape (rows,)."""
        return {"sum": table.new_zeros(table.shape[0])}

    def update(
        self, table: Tensor, ids: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> None:
        """Update accumulators and rows."""
        lr, eps, total = options["lr"], options["eps"], state["sum"]
        if fbgemm.adagrad(table, ids, gradient, total, lr=lr, eps=eps):
            return
        for part_ids, part in parts(ids, gradient):
            norm = torch.linalg.vector_norm(part, dim=1)
            sums = total[part_ids].addcmul_(norm, norm, value=1 / part.shape[1])
            total.index_copy_(0, part_ids, sums)
            table.index_add_(0, part_ids, part / sums.sqrt_().add_(eps).unsqueeze(1), alpha=-lr)
