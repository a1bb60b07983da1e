"""Row-wise Adagrad, which remembers one number for each row: what recommenders with large tables are usually trained with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from recsys_cli.training.rows import fbgemm
from recsys_cli.training.rows.row_optimizer import RowOptimizer, parts


class RowAdagrad(RowOptimizer):
    """Adagrad with one accumulator a row: s += mean(g²) over the row's D elements, w -= lr · g / (√s + eps).

    The rule of FBGEMM (EXACT_ROWWISE_ADAGRAD) and of Facebook's DLRM, with equal results within rounding. Its memory is a
    D-th of the table's, and a row that comes seldom still takes large steps.

    Args:
        params: Tables, shape (rows, D), whose gradients are sparse tensors.
        lr: Step size; a row's first step has about this length for each element.
        eps: Added to the root of the accumulator.
    """

    def __init__(self, params: Iterable[Tensor], *, lr: float = 1e-2, eps: float = 1e-8) -> None:
        super().__init__(params, {"lr": lr, "eps": eps})

    def remembered(self, table: Tensor) -> dict[str, Tensor]:
        """Return the sum of the mean squares, shape (rows,)."""
        return {"sum": table.new_zeros(table.shape[0])}

    def update(
        self, table: Tensor, ids: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> None:
        """Add the gradients' mean squares, and step by the gradients over their root."""
        lr, eps, total = options["lr"], options["eps"], state["sum"]
        if fbgemm.adagrad(table, ids, gradient, total, lr=lr, eps=eps):
            return
        for some, rows in parts(ids, gradient):
            length = torch.linalg.vector_norm(rows, dim=1)
            here = total[some].addcmul_(length, length, value=1 / rows.shape[1])
            total.index_copy_(0, some, here)
            table.index_add_(0, some, rows / here.sqrt_().add_(eps).unsqueeze(1), alpha=-lr)
