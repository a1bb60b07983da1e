"""The user-item graph of positives, and its propagation as sums over neighbors, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.models.interaction_matrix import InteractionMatrix


@dataclass(frozen=True)
class Edges:
    """Edges to V nodes, grouped by target node: a sparse matrix in CSR format.

    Attributes:
        sources: Source node of each edge, shape (E,), int64.
        offsets: Row pointers by target node, shape (V + 1,).
        weights: Edge weights, shape (E,), float32.
    """

    sources: Tensor
    offsets: Tensor
    weights: Tensor

    def sums(self, rows: Tensor) -> Tensor:
        """Return the weighted sum over the source rows of each node's edges, shape (V, D)."""
        # A sparse-dense matrix product, by a stable kernel on all cores instead of torch's beta of sparse tensors.
        return F.embedding_bag(
            self.sources, rows, self.offsets, mode="sum", per_sample_weights=self.weights, include_last_offset=True
        )


@dataclass(frozen=True)
class Graph:
    """Edges between users and items with weight 1 / sqrt(degree of the user * degree of the item).

    Attributes:
        to_users: Edges from items to users.
        to_items: The same edges from users to items.
    """

    to_users: Edges
    to_items: Edges

    @classmethod
    def of(cls, positives: InteractionMatrix) -> Graph:
        """Build the graph of positive interactions."""
        degrees = positives.offsets.diff()
        users = torch.arange(positives.num_users, device=degrees.device).repeat_interleave(degrees)
        weights = (degrees[users] * positives.counts[positives.items]).float().rsqrt()
        order = torch.argsort(positives.items, stable=True)
        offsets = torch.cat([degrees.new_zeros(1), positives.counts.cumsum(0)])
        return cls(Edges(positives.items, positives.offsets, weights), Edges(users[order], offsets, weights[order]))

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


def _propagate(rows: Tensor, edges: Edges, back: Edges) -> Tensor:
    summed: Tensor = _Propagate.apply(rows, edges, back)
    return summed


class _Propagate(torch.autograd.Function):
    """One propagation layer; its gradient propagates along the reversed edges, also a sum over neighbors."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, edges: Edges, back: Edges) -> Tensor:
        ctx.back = back
        return edges.sums(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back.sums(gradients[0].contiguous()), None, None
