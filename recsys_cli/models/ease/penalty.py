"""Leave-one-out cross-validation of EASE's penalty in closed form, at one inverse per penalty and without a split.

Item j leaves the row x of a user, and the weights of all others follow from P = (XᵀX + λ)⁻¹ by two Sherman-Morrison updates: one
removes x, one adds x without j. The rank of j among the unseen items is that of a model refitted without this interaction.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.item_to_item import add_rows, gram, rows_of

GRID = tuple(step * 10.0**power for power in range(5) for step in (1, 2, 5))
"""Candidate penalties λ. NDCG is flat around the best one, so that factors of two are fine enough."""
MIN_ITEMS = 1_000
"""Minimum number of most popular items for the validation. Long tails of items favor smaller penalties."""
NUM_HELD_OUT = 2_000
"""Number of held-out interactions, one at a time, spread evenly over users."""
_FIRST = GRID.index(200.0)
_CUT_OFF = 10
"""Cut-off of the NDCG, as in the default monitored metric; at 100 larger penalties look better with a long tail."""
_BLOCK = 1 << 19
"""Elements of user rows per block."""
_CONDITION = 20_000
"""Condition number above which rounding in float32 may change the inverse by a thousandth."""


def choose_penalty(matrix: InteractionMatrix, counts: Tensor | None = None) -> float:
    """Return the penalty of `GRID` with the best NDCG of held-out items, by hill climbing from 200.

    Item indices of the matrix are by popularity, most popular first. `counts` is its XᵀX if already known.
    """
    indices, number = torch.arange(matrix.num_items, device=matrix.items.device), _num_items(matrix)
    popular = matrix.renumbered(indices.where(indices < number, -1), num_items=number)
    users, items = _sample_held_out(popular)
    if len(users) == 0:
        return GRID[_FIRST]
    counts = gram(popular) if counts is None else counts[:number, :number]
    ndcg: dict[int, float] = {}

    def quality(step: int) -> float:
        if step not in ndcg:
            ranks = held_out_ranks(popular, users, items, inverse_of(counts, GRID[step]))
            ndcg[step] = float((ranks < _CUT_OFF).div((ranks + 2).log2()).mean())
        return ndcg[step]

    best = _FIRST
    for step in (1, -1):
        while 0 <= best + step < len(GRID) and quality(best + step) > quality(best):
            best += step
    return GRID[best]


def inverse_of(counts: Tensor, penalty: float) -> Tensor:
    """Return (counts + λ)⁻¹; shape (C, C), in the precision of `dtype_of`."""
    inverse = counts.to(dtype_of(counts, penalty), copy=True, memory_format=torch.contiguous_format)
    inverse.diagonal().add_(penalty)
    return invert_(inverse)


def dtype_of(counts: Tensor, penalty: float) -> torch.dtype:
    """Return float32 if counts + λ is well-conditioned, else float64; the trace bounds the largest eigenvalue."""
    return torch.float32 if float(counts.trace()) < _CONDITION * penalty else torch.float64


def invert_(matrix: Tensor) -> Tensor:
    """Replace a positive definite matrix by its inverse in place, without a second matrix in memory; shape (C, C)."""
    columns = matrix.mT  # LAPACK is column-major; for a symmetric matrix the transpose avoids a copy
    torch.linalg.cholesky(columns, out=columns)
    torch.cholesky_inverse(columns, out=columns)
    return matrix


def held_out_ranks(matrix: InteractionMatrix, users: Tensor, items: Tensor, inverse: Tensor) -> Tensor:
    """Return the rank of U held-out items, 0 being the best, among the items unseen by their users; shape (U,), float64.

    `inverse` is P, (XᵀX + λ)⁻¹ of the whole matrix; shape (C, C). Half of the items with equal scores count as better.
    """
    step = max(1, _BLOCK // max(1, matrix.num_items))
    pairs = zip(users.split(step), items.split(step), strict=True)
    return torch.cat([_ranks(matrix, each, held_out, inverse) for each, held_out in pairs])


def _ranks(matrix: InteractionMatrix, users: Tensor, items: Tensor, inverse: Tensor) -> Tensor:
    lists, index = matrix.of_users(users), torch.arange(len(users), device=users.device)
    rows = torch.zeros(len(users), len(inverse), dtype=inverse.dtype, device=inverse.device)
    rows[rows_of(lists), lists.values] = 1
    # P without the user is P + q qᵀ / a, with q = Px and a = 1 - xᵀPx.
    whole = add_rows(inverse, lists)
    own = (rows * whole).sum(1, keepdim=True)
    share = 1 - own
    without = (own - whole[index, items].unsqueeze(1)) / share
    rows[index, items] = 0
    # r is that P times x without j; then x without j joins the others: P - r rᵀ / (1 + xᵀr).
    folded = whole - inverse[items] + without * whole
    joined = 1 + (rows * folded).sum(1, keepdim=True)
    diagonal = inverse.diagonal() + whole.square() / share - folded.square() / joined
    scores = (folded / diagonal).neg_().masked_fill_(rows > 0, -torch.inf)
    held_out = scores[index, items].unsqueeze(1)
    return (scores > held_out).sum(1) + ((scores == held_out).sum(1) - 1).double() / 2


def _num_items(matrix: InteractionMatrix) -> int:
    """Return the number of validation items: a penalty costs an eighth of the fit, with half of the items if users are many."""
    num_users = int((matrix.offsets.diff() > 0).sum())
    work = round((num_users**2 * matrix.num_items) ** (1 / 3))
    return min(matrix.num_items, max(MIN_ITEMS, min(matrix.num_items, work) // 2))


def _sample_held_out(matrix: InteractionMatrix) -> tuple[Tensor, Tensor]:
    """Sample users with two items or more, and one item of each; the same in each call."""
    lengths = matrix.offsets.diff().cpu()
    users = (lengths > 1).nonzero().squeeze(1)
    generator = torch.Generator().manual_seed(0)
    users = users[torch.randperm(len(users), generator=generator)]
    users = users.repeat(NUM_HELD_OUT // max(1, len(users)) + 1)[:NUM_HELD_OUT]
    offsets = (torch.rand(len(users), generator=generator) * lengths[users]).long()
    users, offsets = users.to(matrix.items.device), offsets.to(matrix.items.device)
    return users, matrix.items[matrix.offsets[users] + offsets]
