"""Base class of row-wise optimizers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.training.rows.gradient import rows_of
from recsys_cli.training.uncompiled import Uncompiled

_PART = 1 << 20
"""Elements of a table updated at a time: bounds temporary tensors to 4 MiB each."""


class RowOptimizer(Uncompiled):
    """Optimizer of tables, shape (rows, D), with updates of the rows in sparse gradients; other rows keep weights and state.

    Each updated row and its state is read and written once; torch's own optimizers add and sort sparse tensors. The
    first step of a table creates its state on the table's device.
    """

    @abstractmethod
    def initial_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return the optimizer state of a table before its first step."""

    @abstractmethod
    def update(
        self, table: Tensor, ids: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> None:
        """Update rows of a table and their state in place.

        Args:
            table: Embedding table, shape (rows, D).
            ids: Rows to update, unique and ascending; shape (U,).
            gradient: Gradient of these rows, read-only; shape (U, D).
            state: Optimizer state of the table.
            options: Options of the parameter group.
        """

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
                    self._step(table, group)
        return loss

    def _step(self, table: Tensor, group: Mapping[str, Any]) -> None:
        if not table.grad.is_sparse:  # type: ignore[union-attr]
            raise ConfigError(
                "train.sparse_embeddings=true, but the model's embedding tables have dense gradients",
                hint="build the tables with the `sparse` argument of the model, or set train.sparse_embeddings=false",
            )
        state = self.state[table]
        if not state:
            state.update(self.initial_state(table))
        ids, gradient = rows_of(table)
        self.update(table, ids, gradient, state, group)


def parts(ids: Tensor, gradient: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Split ids and rows into parts of at most `_PART` elements, to bound temporary memory."""
    size = max(1, _PART // gradient.shape[1])
    return zip(ids.split(size), gradient.split(size), strict=True)
