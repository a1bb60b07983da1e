"""EASE in closed form, with all weights or the largest, and its penalty by leave-one-out cross-validation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.configs.matrix import EASEConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.item_to_item import DenseWeights, ItemToItemModel, ItemWeights, add_rows, gram, rows_of
from recsys_cli.models.matrix.inverse import dtype_of, inverse_of, invert_
from recsys_cli.models.matrix.largest_weights import largest_weights
from recsys_cli.models.matrix.neighbors import Neighbors
from recsys_cli.models.model import Progress

GRID = tuple(step * 10.0**power for power in range(5) for step in (1, 2, 5))
"""Candidate penalties λ. NDCG is flat around the best one, so that factors of two are fine enough."""
MIN_ITEMS = 1_000
"""Minimum number of most popular items for the validation. Long tails of items favor smaller penalties."""
NUM_HELD_OUT = 2_000
"""Number of held-out interactions, one at a time, spread evenly over users."""
_FIRST = GRID.index(200.0)
_CUT_OFF = 10
"""Cut-off of the NDCG, as in the default monitored metric; at 100 larger penalties look better with a long tail."""
_HELD_OUT_BLOCK = 1 << 19
"""Elements of user rows per block."""
_BLOCK = 1 << 22
"""Elements of folded-in user vectors per block."""
_DENSE_BYTES = {torch.float64: 14, torch.float32: 6}
"""Bytes per item pair while fitting: the weights in float32, the matrix to invert unless in place, and 2 of the penalty search."""
_BYTES_OF_A_USER = 20
"""Bytes per (item, user) pair with few users: a row and a vector in float64, and the final vector in float32."""
_LARGEST, _BYTES_OF_A_WEIGHT = 100, 180
"""Weights per item where memory does not hold all, on average, and bytes per weight while fitting."""
_BYTES_OF_A_COUNT = 40
"""Bytes per pair of the items that memory holds for the penalty search."""


def choose_penalty(matrix: InteractionMatrix, counts: Tensor | None = None, *, max_items: int | None = None) -> float:
    """Return the penalty of `GRID` with the best NDCG of held-out items, by hill climbing from 200.

    Item indices of the matrix are by popularity, most popular first. `counts` is its XᵀX if already known. Of the items at most
    `max_items` take part.
    """
    number = min(_num_items(matrix), max_items or matrix.num_items)
    popular = matrix.first(number)
    users, items = sample_held_out(popular)
    if len(users) == 0:
        return GRID[_FIRST]
    counts = gram(popular) if counts is None else counts[:number, :number]
    ndcg: dict[int, float] = {}

    def quality(step: int) -> float:
        if step not in ndcg:
            ranks = held_out_ranks(popular, users, items, inverse_of(counts, GRID[step]))
            ndcg[step] = float(gains_of(ranks).mean())
        return ndcg[step]

    best = _FIRST
    for step in (1, -1):
        while 0 <= best + step < len(GRID) and quality(best + step) > quality(best):
            best += step
    return GRID[best]


def gains_of(ranks: Tensor) -> Tensor:
    """Return the NDCG@10 of single held-out items from their ranks, 0 being the best."""
    return (ranks < _CUT_OFF).div((ranks + 2).log2())


def held_out_ranks(matrix: InteractionMatrix, users: Tensor, items: Tensor, inverse: Tensor) -> Tensor:
    """Return the rank of U held-out items, 0 being the best, among the items unseen by their users; shape (U,), float64.

    `inverse` is P, (XᵀX + λ)⁻¹ of the whole matrix; shape (C, C). Half of the items with equal scores count as better.
    """
    step = max(1, _HELD_OUT_BLOCK // max(1, matrix.num_items))
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


def sample_held_out(matrix: InteractionMatrix) -> tuple[Tensor, Tensor]:
    """Sample users with two items or more, and one item of each; the same in each call."""
    lengths = matrix.offsets.diff().cpu()
    users = (lengths > 1).nonzero().squeeze(1)
    generator = torch.Generator().manual_seed(0)
    users = users[torch.randperm(len(users), generator=generator)]
    users = users.repeat(NUM_HELD_OUT // max(1, len(users)) + 1)[:NUM_HELD_OUT]
    offsets = (torch.rand(len(users), generator=generator) * lengths[users]).long()
    users, offsets = users.to(matrix.items.device), offsets.to(matrix.items.device)
    return users, matrix.items[matrix.offsets[users] + offsets]


class EASE(ItemToItemModel):
    """B minimizes |X - XB|² + λ|B|² with a zero diagonal, for the interaction matrix X (Steck 2019, eq. 8).

    With P = (XᵀX + λ)⁻¹ it is B = 1 - P diag(P)⁻¹.
    """

    deterministic = True
    learnt: DenseWeights | LowRankWeights | Neighbors

    def __init__(self, config: EASEConfig, schema: Schema) -> None:
        budget = config.memory_mib << 20
        num_users = len(schema.only(Role.USER).own_ids)
        super().__init__(schema, positive_only=config.positive_only, max_items=config.max_items)
        self.config = config
        self._users = self.user.own_ids
        self._budget = budget
        self._fits_float64 = _DENSE_BYTES[torch.float64] * self.num_items**2 <= budget
        if num_users < self.num_items <= _fit_with(num_users, budget):
            self.learnt = LowRankWeights(self.num_items, num_users)
        elif self.num_items <= most_items(num_users, budget):
            self.learnt = DenseWeights(self.num_items)
        else:
            number = min(_LARGEST, budget // (_BYTES_OF_A_WEIGHT * self.num_items))
            self.learnt = Neighbors(self.num_items, max(1, number))

    def learn(self, matrix: InteractionMatrix, progress: Progress) -> None:
        """Choose the penalty if the config has none, and solve the linear system."""
        if isinstance(self.learnt, Neighbors):
            self._learn_largest(self.learnt, matrix, progress)
            return
        progress(0, 3)
        counts = gram(matrix, out=self.learnt.weights) if isinstance(self.learnt, DenseWeights) else None
        progress(1, 3)
        penalty = self._penalty(matrix, counts)
        progress(2, 3)
        if isinstance(self.learnt, LowRankWeights):
            rows = matrix.dense(self._users.start, self._users.stop, dtype=torch.float64)
            self.learnt.solve(rows, penalty)
        else:
            counts = self.learnt.weights
            system = counts.to(dtype_of(counts, penalty) if self._fits_float64 else torch.float32)
            system.diagonal().add_(penalty)
            invert_(system).div_(-system.diagonal().clone()).fill_diagonal_(0)
            counts.copy_(system)
        progress(3, 3)

    def _learn_largest(self, learnt: Neighbors, matrix: InteractionMatrix, progress: Progress) -> None:
        penalty = self._penalty(matrix, max_items=math.isqrt(self._budget // _BYTES_OF_A_COUNT))
        learnt.keep(*largest_weights(matrix, penalty, number=len(learnt.weights), progress=progress))

    def _penalty(
        self, matrix: InteractionMatrix, counts: Tensor | None = None, *, max_items: int | None = None
    ) -> float:
        if self.config.regularization is not None:
            return self.config.regularization
        penalty = choose_penalty(matrix, counts, max_items=max_items)
        self.chosen = {"regularization": penalty}
        return penalty


def most_items(num_users: int, budget: int) -> int:
    """Return the maximum number of items with all weights, dense or low-rank, within a memory budget in bytes."""
    return max(1, math.isqrt(budget // _DENSE_BYTES[torch.float32]), _fit_with(num_users, budget))


def _fit_with(num_users: int, budget: int) -> int:
    """Return the maximum number of items with vectors of R users, within a budget in bytes."""
    return budget // (_BYTES_OF_A_USER * max(1, num_users))


class LowRankWeights(ItemWeights):
    """The weights of EASE in factored form, for fewer users than items, never written out.

    By Woodbury's identity P = (1 - VᵀV) / λ with V = L⁻¹X and LLᵀ = XXᵀ + λ. For a row x of X, and with the shares d =
    λ diag(P) = 1 - |v|² of the columns v of V, xB = x - (x - xVᵀV) / d. With R users the factors take 4 R C bytes.
    """

    vectors: Tensor
    shares: Tensor

    def __init__(self, num_items: int, num_users: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(num_items, num_users))
        self.register_buffer("shares", torch.ones(num_items))

    def solve(self, rows: Tensor, regularization: float) -> None:
        """Fit the factors to the rows of all users; shape (R, C), float64."""
        products = rows @ rows.T
        products.diagonal().add_(regularization)
        vectors = torch.linalg.solve_triangular(torch.linalg.cholesky(products), rows, upper=False)
        self.vectors.copy_(vectors.T)
        self.shares.copy_(1 - vectors.square().sum(0))

    def sums(self, histories: Ragged) -> Tensor:
        """Fold in the users, and multiply them with all items."""
        sums = (add_rows(self.vectors, histories) @ self.vectors.T).div_(self.shares)
        sums[rows_of(histories), histories.values] += 1 - 1 / self.shares[histories.values]
        return sums

    def sums_of_pairs(self, histories: Ragged, items: Tensor) -> Tensor:
        """Fold in the users, and multiply each with one item."""
        row = rows_of(histories)
        products, own = torch.zeros(2, len(items), device=items.device)
        step = max(1, _BLOCK // self.vectors.shape[1])
        for start in range(0, len(items), step):
            users = slice(start, min(start + step, len(items)))
            folded = add_rows(self.vectors, histories.span(users.start, users.stop))
            products[users] = (folded * self.vectors[items[users]]).sum(1)
        own.index_add_(0, row, (histories.values == items[row]).float())
        return (products - own) / self.shares[items] + own
