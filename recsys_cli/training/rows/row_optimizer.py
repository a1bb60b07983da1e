"""What all row-wise optimizers do alike: gather the rows of a gradient and their state, update them, write them back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.training.rows.gradient import rows_of

_CHUNK = 1 << 20
"""Elements of a table that are updated at a time: bounds the memory that it takes to 4 MiB for each tensor."""


class RowOptimizer(torch.optim.Optimizer):
    """Updates the rows of tables that are in their gradients; all other rows keep their weights and their state.

    Torch's own optimizers add sparse tensors to sparse tensors and sort on the way. Here each used row, and what the rule
    remembers of it, is read once and written once. State lies where the table lies, under the names that `remembered` gives
    it; a table's first step makes it.
    """

    @abstractmethod
    def remembered(self, table: Tensor) -> dict[str, Tensor]:
        """Return what a rule remembers of a table before the first step, by name.

        Shape (rows, D) or (rows,) is remembered of each row, and gathered with it; a scalar is of the table as a whole.
        """

    @abstractmethod
    def update(self, rows: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> None:
        """Change rows, and what is remembered of them, in place.

        Args:
            rows: Shape (U, D).
            gradient: Of these rows, not to be changed; shape (U, D).
            state: What is remembered of these rows, by name; scalars as they are for the whole table.
            options: Of the parameter group: lr and the like.
        """

    def close(self, state: Mapping[str, Tensor]) -> None:
        """Note that a table's step is over, in what is remembered of the table as a whole."""

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
                "train.sparse is true, and the model's embedding tables have dense gradients",
                hint="a model has to make its tables sparse where it is built with sparse=True; or set train.sparse=false",
            )
        state = self.state[table]
        if not state:
            state.update(self.remembered(table))
        whole = {name: value for name, value in state.items() if not value.dim()}
        by_row = {name: value for name, value in state.items() if value.dim()}
        ids, gradient = rows_of(table)
        size = max(1, _CHUNK // table.shape[1])
        for some, some_gradient in zip(ids.split(size), gradient.split(size), strict=True):
            rows = table.index_select(0, some)
            held = {name: value.index_select(0, some) for name, value in by_row.items()}
            self.update(rows, some_gradient, held | whole, group)
            table.index_copy_(0, some, rows)
            for name, value in by_row.items():
                value.index_copy_(0, some, held[name])
        self.close(whole)
