"""Gradient descent on the rows of the batch, which remembers nothing: the least memory that training can take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from recsys_cli.training.rows import fbgemm
from recsys_cli.training.rows.row_optimizer import RowOptimizer


class RowSGD(RowOptimizer):
    """Plain gradient descent: w -= lr · g, as torch.optim.SGD without momentum.

    Args:
        params: Tables, shape (rows, D), whose gradients are sparse tensors.
        lr: Step size.
    """

    def __init__(self, params: Iterable[Tensor], *, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def remembered(self, table: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - of any table
        """Return nothing."""
        return {}

    def update(
        self,
        table: Tensor,
        ids: Tensor,
        gradient: Tensor,
        state: Mapping[str, Tensor],  # noqa: ARG002 - there is none
        options: Mapping[str, Any],
    ) -> None:
        """Step against the gradients."""
        if not fbgemm.sgd(table, ids, gradient, lr=options["lr"]):
            table.index_add_(0, ids, gradient, alpha=-options["lr"])
