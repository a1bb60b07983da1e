"""The graph of who likes what, and one step along its edges: a sum over neighbours, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.models.interaction_matrix import InteractionMatrix


@dataclass(frozen=True)
class Edges:
    """Edges to V nodes, grouped by the node that they lead to: a sparse matrix by rows.

    Attributes:
        sources: Where each comes from, shape (E,), int64.
        offsets: Where the edges to each node start, and E at the end; shape (V + 1,).
        weights: Shape (E,), float32.
    """

    sources: Tensor
    offsets: Tensor
    weights: Tensor

    def sums(self, rows: Tensor) -> Tensor:
        """Return for each node the weighted sum of the rows that edges come from, shape (V, D)."""
        # The same sums as of a sparse matrix by a dense one, by a kernel that uses all cores and is no beta.
        return F.embedding_bag(
            self.sources, rows, self.offsets, mode="sum", per_sample_weights=self.weights, include_last_offset=True
        )


@dataclass(frozen=True)
class Graph:
    """The edges between users and items, each with weight 1 / sqrt(degree of the user * degree of the item).

    Attributes:
        to_users: From items.
        to_items: From users: the same edges the other way.
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

    def smoothed(self, users: Tensor, items: Tensor, *, layers: int) -> tuple[Tensor, Tensor]:
        """Return the means over 0, 1, …, `layers` steps along the edges; shapes (num_users, D) and (num_items, D)."""
        all_users, all_items = users, items
        for _ in range(layers):
            users, items = (
                _along(items, self.to_users, self.to_items),
                _along(users, self.to_items, self.to_users),
            )
            all_users, all_items = all_users + users, all_items + items
        return all_users / (layers + 1), all_items / (layers + 1)


def _along(rows: Tensor, edges: Edges, back: Edges) -> Tensor:
    summed: Tensor = _Along.apply(rows, edges, back)
    return summed


class _Along(torch.autograd.Function):
    """A step along edges; a gradient goes the same edges back, so that it is a sum over neighbours too."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, edges: Edges, back: Edges) -> Tensor:
        ctx.back = back
        return edges.sums(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back.sums(gradients[0].contiguous()), None, None
