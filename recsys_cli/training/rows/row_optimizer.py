"""What all row-wise optimizers do alike: find the rows of a gradient and the state of their table, and let a rule update them."""

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
"""Elements of a table that are updated at a time: bounds the memory that it takes to 4 MiB for each tensor."""


class RowOptimizer(Uncompiled):
    """Updates the rows of tables that are in their gradients; all other rows keep their weights and their state.

    Torch's own optimizers add sparse tensors to sparse tensors and sort on the way. Here each used row, and what the rule
    remembers of it, is read once and written once. State lies where the table lies; a table's first step makes it.
    """

    @abstractmethod
    def remembered(self, table: Tensor) -> dict[str, Tensor]:
        """Return what the rule remembers of a table before its first step, by name."""

    @abstractmethod
    def update(
        self, table: Tensor, ids: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> None:
        """Change some rows of a table, and what is remembered of them.

        Args:
            table: Shape (rows, D).
            ids: Of the rows, ascending without repeats; shape (U,).
            gradient: Of these rows, not to be changed; shape (U, D).
            state: What is remembered of the table, by name.
            options: Of the parameter group: lr and the like.
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
                "train.sparse_embeddings is true, and the model's embedding tables have dense gradients",
                hint="build sparse tables where the model gets sparse=True, or set train.sparse_embeddings=false",
            )
        state = self.state[table]
        if not state:
            state.update(self.remembered(table))
        ids, gradient = rows_of(table)
        self.update(table, ids, gradient, state, group)


def parts(ids: Tensor, gradient: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut rows into runs that need little memory beside them; for what is computed in several steps."""
    size = max(1, _PART // gradient.shape[1])
    return zip(ids.split(size), gradient.split(size), strict=True)
