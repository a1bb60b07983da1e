"""The penalty of EASE by leave-one-out cross-validation, which has a closed form: no split, and one inverse a penalty.

A user's row x of X loses one item j, and the weights of all others follow from P = (XᵀX + λ)⁻¹ by the Sherman-Morrison
formula: once for taking x away, and once for putting x without j in its place. So the rank of j among what the user has not met
is that of a model that was fitted anew without this one interaction.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.item_to_item import gram

GRID = tuple(step * 10.0**power for power in range(5) for step in (1, 2, 5))
"""Penalties to choose from, λ. NDCG is flat around the best, so that steps of twice as much are fine enough."""
LEAST_ITEMS = 1_000
"""Of the most popular items, which stand for all, so many are looked at or more. In a long tail smaller penalties are better."""
NUM_LEFT_OUT = 2_000
"""Interactions that are left out, each by itself: as many of each user, where there are enough of them."""
_FIRST = GRID.index(200.0)
_CUT_OFF = 10
"""Of the NDCG that decides, as of what is monitored by default; at 100 larger penalties look better where the tail is long."""
_BLOCK = 1 << 21
"""Numbers of users' rows that are held at once."""


def choose_penalty(matrix: InteractionMatrix) -> float:
    """Return the penalty of `GRID` that ranks left-out items best; climbs from 200 as long as it gets better.

    Args:
        matrix: Of train, with items numbered from 0, the most popular first.
    """
    names, number = torch.arange(matrix.num_items, device=matrix.items.device), _num_items(matrix)
    popular = matrix.renamed(names.where(names < number, -1), num_items=number)
    users, items = _left_out(popular)
    if len(users) == 0:
        return GRID[_FIRST]
    counts = gram(popular).double()
    found: dict[int, float] = {}

    def quality(place: int) -> float:
        if place not in found:
            ranks = left_out_ranks(popular, users, items, inverse_of(counts, GRID[place]))
            found[place] = float((ranks < _CUT_OFF).div((ranks + 2).log2()).mean())
        return found[place]

    best = _FIRST
    for step in (1, -1):
        while 0 <= best + step < len(GRID) and quality(best + step) > quality(best):
            best += step
    return GRID[best]


def inverse_of(counts: Tensor, penalty: float) -> Tensor:
    """Return (counts + λ)⁻¹; shape (C, C), float64."""
    return torch.cholesky_inverse(torch.linalg.cholesky(counts + penalty * torch.eye(len(counts)).to(counts)))


def left_out_ranks(matrix: InteractionMatrix, users: Tensor, items: Tensor, inverse: Tensor) -> Tensor:
    """Return the rank of each left-out item, 0 being the best, among the items that its user has not met.

    Args:
        matrix: Of C items.
        users: Whose interaction is left out, each by itself; shape (U,).
        items: Which; shape (U,).
        inverse: P, (XᵀX + λ)⁻¹ of the whole matrix; shape (C, C), float64.

    Returns:
        Shape (U,), float64; of equal scores half are better.
    """
    step = max(1, _BLOCK // max(1, matrix.num_items))
    pairs = zip(users.split(step), items.split(step), strict=True)
    return torch.cat([_ranks(matrix, each, left_out, inverse) for each, left_out in pairs])


def _ranks(matrix: InteractionMatrix, users: Tensor, items: Tensor, inverse: Tensor) -> Tensor:
    lists, place = matrix.of_users(users), torch.arange(len(users), device=users.device)
    rows = torch.zeros(len(users), len(inverse), dtype=inverse.dtype, device=inverse.device)
    rows[place.repeat_interleave(lists.offsets.diff()), lists.values] = 1
    # P of all other users is P + q qᵀ / a, with q = Px and a = 1 - xᵀPx.
    whole = rows @ inverse
    own = (rows * whole).sum(1, keepdim=True)
    share = 1 - own
    without = (own - whole[place, items].unsqueeze(1)) / share
    rows[place, items] = 0
    # r is what that P makes of x without j; then x without j joins the others: P - r rᵀ / (1 + xᵀr).
    folded = whole - inverse[items] + without * whole
    joined = 1 + (rows * folded).sum(1, keepdim=True)
    diagonal = inverse.diagonal() + whole.square() / share - folded.square() / joined
    scores = (folded / diagonal).neg_().masked_fill_(rows > 0, -torch.inf)
    wanted = scores[place, items].unsqueeze(1)
    return (scores > wanted).sum(1) + ((scores == wanted).sum(1) - 1).double() / 2


def _num_items(matrix: InteractionMatrix) -> int:
    """Return how many items are looked at: so many that a penalty costs an eighth of the fit, half of all where users are many."""
    num_users = int((matrix.offsets.diff() > 0).sum())
    work = round((num_users**2 * matrix.num_items) ** (1 / 3))
    return min(matrix.num_items, max(LEAST_ITEMS, min(matrix.num_items, work) // 2))


def _left_out(matrix: InteractionMatrix) -> tuple[Tensor, Tensor]:
    """Draw users who have met two items or more, and an item of theirs each time; the same in each call."""
    lengths = matrix.offsets.diff().cpu()
    users = (lengths > 1).nonzero().squeeze(1)
    generator = torch.Generator().manual_seed(0)
    users = users[torch.randperm(len(users), generator=generator)]
    users = users.repeat(NUM_LEFT_OUT // max(1, len(users)) + 1)[:NUM_LEFT_OUT]
    which = (torch.rand(len(users), generator=generator) * lengths[users]).long()
    users, which = users.to(matrix.items.device), which.to(matrix.items.device)
    return users, matrix.items[matrix.offsets[users] + which]
