"""Row-wise gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from recsys_cli.training.rows import fbgemm
from recsys_cli.training.rows.row_optimizer import RowOptimizer


class RowSGD(RowOptimizer):
    """Plain gradient descent without state: w -= lr · g, as torch.optim.SGD without momentum."""

    def __init__(self, params: Iterable[Tensor], *, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def initial_state(self, table: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - stateless
        """Return an empty state."""
        return {}

    def update(
        self,
        table: Tensor,
        ids: Tensor,
        gradient: Tensor,
        state: Mapping[str, Tensor],  # noqa: ARG002 - stateless
        options: Mapping[str, Any],
    ) -> None:
        """Subtract the scaled gradient."""
        if not fbgemm.sgd(table, ids, gradient, lr=options["lr"]):
            table.index_add_(0, ids, gradient, alpha=-options["lr"])
