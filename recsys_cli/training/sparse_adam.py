"""Adam for embedding tables that touches only the rows of the batch, and each of them once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from recsys_cli.errors import ConfigError

_CHUNK = 1 << 23
"""Elements of a table that are gathered, updated and written back at a time; bounds the working memory to 3 × 32 MiB."""


class RowAdam(torch.optim.Optimizer):
    """What torch.optim.SparseAdam computes, in a fraction of its time: gather, torch's fused Adam kernel, scatter.

    SparseAdam adds sparse tensors to sparse tensors and sorts on the way. Here a row's weights and its two moments are
    read once and written once. Rows that are not in the gradient keep weights and moments; the bias correction counts
    all steps. Equal to SparseAdam within rounding.

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
        self._scratch: dict[torch.device, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the rows of the gradients.

        Raises:
            ConfigError: A gradient is not a sparse tensor.
        """
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, table.grad, group)
        return loss

    def _update(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        if not gradient.is_sparse:
            raise ConfigError(
                "train.sparse is true, and the model's embedding tables have dense gradients",
                hint="a model has to make its tables sparse where it is built with sparse=True; or set train.sparse=false",
            )
        state = self.state[table]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=table.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(table), torch.zeros_like(table)
        ids, values = _rows_of(gradient)
        rows = max(1, _CHUNK // table.shape[1])
        done = state["step"].clone()
        for part, part_values in zip(ids.split(rows), values.split(rows), strict=True):
            self._update_rows((table, state["exp_avg"], state["exp_avg_sq"]), part, part_values, done, group)
        state["step"] += 1

    def _update_rows(
        self, tensors: tuple[Tensor, Tensor, Tensor], ids: Tensor, gradient: Tensor, done: Tensor, group: dict[str, Any]
    ) -> None:
        beta1, beta2 = group["betas"]
        here = self._buffers(tensors[0], ids.numel())
        for tensor, rows in zip(tensors, here, strict=True):
            torch.index_select(tensor, 0, ids, out=rows)
        # Adam adds eps after the bias correction of the mean square, SparseAdam before it.
        eps = group["eps"] / math.sqrt(1 - beta2 ** (float(done) + 1))
        adam(
            [here[0]], [gradient], [here[1]], [here[2]], [], [done.clone()], fused=True,
            amsgrad=False, beta1=beta1, beta2=beta2, lr=group["lr"], weight_decay=0.0, eps=eps, maximize=False,
        )  # fmt: skip
        for tensor, rows in zip(tensors, here, strict=True):
            tensor.index_copy_(0, ids, rows)

    def _buffers(self, table: Tensor, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return three places of shape (num_rows, D) that are kept between steps: fresh pages cost more than the update."""
        size = num_rows * table.shape[1]
        scratch = self._scratch.get(table.device)
        if scratch is None or scratch.shape[1] < size or scratch.dtype != table.dtype:
            scratch = self._scratch[table.device] = table.new_empty((3, size))
        first, second, third = (row[:size].view(num_rows, table.shape[1]) for row in scratch)
        return first, second, third


def _rows_of(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return a sparse gradient's row ids, ascending without repeats, and its rows.

    Backward passes lose the mark of being coalesced, so it is looked for in the ids: far cheaper than coalescing.
    """
    ids = gradient._indices()[0]
    if not bool((ids[1:] > ids[:-1]).all()):
        gradient = gradient.coalesce()
    return gradient._indices()[0], gradient._values()
