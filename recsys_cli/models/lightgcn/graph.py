"""The user-item graph of positives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.models.interaction_matrix import InteractionMatrix, transpose
from recsys_cli.models.item_to_item import add_rows


@dataclass(frozen=True)
class Graph:
    """Edges between users and items with weight 1 / sqrt(degree of the user * degree of the item).

    Attributes:
        to_users: Items of each user, with weights.
        to_items: Users of each item: the same edges.
    """

    to_users: Ragged
    to_items: Ragged

    @classmethod
    def of(cls, positives: InteractionMatrix) -> Graph:
        """Build the graph of positive interactions."""
        degrees = positives.offsets.diff()
        weights = (degrees[positives.users] * positives.counts[positives.items]).float().rsqrt()
        to_users = Ragged(positives.items, positives.offsets, weights)
        return cls(to_users, transpose(to_users, positives.num_items))

    def propagate(self, users: Tensor, items: Tensor, *, layers: int) -> tuple[Tensor, Tensor]:
        """Return the means over propagation layers 0, …, `layers`; shapes (num_users, D) and (num_items, D)."""
        all_users, all_items = users, items
        for _ in range(layers):
            users, items = (
                _propagate(items, self.to_users, self.to_items),
                _propagate(users, self.to_items, self.to_users),
            )
            all_users, all_items = all_users + users, all_items + items
        return all_users / (layers + 1), all_items / (layers + 1)


def _propagate(rows: Tensor, edges: Ragged, back: Ragged) -> Tensor:
    summed: Tensor = _Propagate.apply(rows, edges, back)
    return summed


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, edges: Ragged, back: Ragged) -> Tensor:
        ctx.back = back
        return add_rows(rows, edges)  # a stable kernel on all cores, unlike those of sparse tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return add_rows(gradients[0].contiguous(), ctx.back), None, None
