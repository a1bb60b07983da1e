"""iALS: item factors by the library `implicit`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import MissingExtraError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.configs.matrix import IALSConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix, starts
from recsys_cli.models.item_to_item import rows_of
from recsys_cli.models.matrix.ease import gains_of, sample_held_out
from recsys_cli.models.model import ClosedFormModel, Progress, TrainingContext, no_progress, pair_ids

_BLOCK = 1 << 23
"""Elements per block while solving for user factors."""
_MAX_ALPHA = 100.0
_MIN_USERS, _MAX_HELD_OUT, _HELD_OUT_DIM, _RANKED = 100, 2_000_000, 64, 256
"""For the choice of the penalty: fewest users, most interactions, width of the factors, users at a time."""


class IALS(ClosedFormModel):
    """Fitted item factors; a user's are the least-squares solution for the user history (Hu et al. 2008, eq. 4)."""

    scoring = "dot_product"
    folds_in = True
    loss_options = frozenset({"features.weight"})
    items: Tensor
    penalty: Tensor
    alpha: Tensor

    def __init__(self, config: IALSConfig, schema: Schema) -> None:
        super().__init__()
        self.config = config
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.register_buffer("items", torch.zeros(int(self.item.cardinality or 0), config.embedding_dim))
        self.register_buffer("penalty", torch.tensor(config.regularization or 1.0))
        self.register_buffer("alpha", torch.tensor(config.alpha or 1.0), persistent=config.alpha is None)
        self._users = torch.zeros(int(self.user.cardinality or 0), config.embedding_dim)
        self._products: tuple[object, Tensor] | None = None

    def fit(self, context: TrainingContext, *, progress: Progress = no_progress) -> None:
        """Alternate between user and item factors; `MissingExtraError` without `implicit`."""
        config, chosen = self.config, {}
        if config.alpha is None:
            self.alpha.fill_(alpha_of(*self._strengths(context)))
            chosen["alpha"] = float(self.alpha)
        matrix, confidence = self._confidence(context)
        if config.regularization is None:
            self.penalty.fill_(choose_penalty(matrix, confidence, config))
            chosen["regularization"] = float(self.penalty)
        self.chosen = chosen
        self.items.copy_(
            item_factors(
                matrix, confidence, config, float(self.penalty), seed=int(torch.randint(2**31, ())), progress=progress
            )
        )

    def set_context(self, context: TrainingContext) -> None:
        """Solve for the factors of all users from their current history."""
        self._users = user_factors(*self._confidence(context), self.items, self._all_items())

    def _all_items(self) -> Tensor:
        """Return the regularized products of all item factors, shape (D, D); computed once for the same factors."""
        state = [(one.data_ptr(), one._version) for one in (self.items, self.penalty)]
        if self._products is None or self._products[0] != state:
            self._products = state, regularized_products(self.items, float(self.penalty))
        return self._products[1]

    def score(self, batch: Batch) -> Tensor:
        """Return the dot product of each row's user and item factors; shape (B,)."""
        users, items = pair_ids(batch, self.user, self.item)
        return (self.user_vectors(users) * self.item_vectors(items)).sum(1)

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return user factors, shape (U, D); zeros for users without a history."""
        return self._users[users]

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return item factors, shape (I, D); zeros for items without interactions."""
        return self.items[items]

    def _confidence(self, context: TrainingContext) -> tuple[InteractionMatrix, Tensor]:
        """Return the interaction matrix, and the confidence c = 1 + alpha r of each element."""
        matrix, strengths = self._strengths(context)
        return matrix, 1 + self.alpha * strengths

    def _strengths(self, context: TrainingContext) -> tuple[InteractionMatrix, Tensor]:
        return InteractionMatrix.with_strengths(
            context.interactions(), self.user, self.item, positive_only=self.config.positive_only, device=self.device
        )


def item_factors(
    matrix: InteractionMatrix,
    confidence: Tensor,
    config: IALSConfig,
    penalty: float,
    *,
    seed: int,
    progress: Progress = no_progress,
) -> Tensor:
    """Return the fitted factors of all items, shape (I, D); `MissingExtraError` without `implicit`."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares  # a second to import, needed for fitting only
        from scipy.sparse import csr_matrix
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise MissingExtraError.for_extra("implicit", what="model.name=ials") from error
    offsets, items = matrix.offsets.cpu().numpy(), matrix.items.cpu().numpy().astype(np.int32)
    weights = csr_matrix((confidence.cpu().numpy(), items, offsets), shape=(matrix.num_users, matrix.num_items))
    with threadpool_limits(1, "blas"):  # the library has its own threads, and warns about BLAS threads
        library = AlternatingLeastSquares(
            factors=config.embedding_dim, regularization=penalty, iterations=config.iterations, random_state=seed,
            alpha=1.0,  # its alpha scales the input, here the whole confidence c and not c - 1
        )  # fmt: skip
        library.fit(weights, show_progress=False, callback=lambda done, *_: progress(done + 1, config.iterations))
    return torch.from_numpy(library.item_factors)


def user_factors(matrix: InteractionMatrix, confidence: Tensor, items: Tensor, products: Tensor) -> Tensor:
    """Return the least-squares factors of all users, shape (U, D), for item factors (I, D) and their `regularized_products`.

    Users without a history have zeros.
    """
    factors = torch.zeros(matrix.num_users, items.shape[1], device=items.device)
    for users in _blocks(matrix, items.shape[1]):
        lists = matrix.of_users(users, confidence)
        assert lists.weights is not None
        longest = int(lists.offsets.diff().max())
        ids, mask = lists.padded(longest)
        weights, _ = Ragged(lists.weights, lists.offsets).padded(longest)
        vectors = items[ids] * mask.unsqueeze(2)
        left = products + vectors.mT @ (vectors * (weights - 1).unsqueeze(2))
        right = (vectors * weights.unsqueeze(2)).sum(1, keepdim=True).mT
        factors[users] = torch.cholesky_solve(right, torch.linalg.cholesky(left)).squeeze(2)
    return factors


def regularized_products(items: Tensor, penalty: float) -> Tensor:
    """Return the products of all item factors with the penalty on the diagonal; shape (D, D)."""
    products = items.T @ items
    products.diagonal().add_(penalty)
    return products


def choose_penalty(matrix: InteractionMatrix, confidence: Tensor, config: IALSConfig) -> float:
    """Return `penalty_of`, or 2, 4 or 8 times as much where items held out of train rank better.

    Better is by a standard error of the paired differences. One item of each of up to 2,000 users is held out; the factors
    have at most 64 dimensions. Fewer than 100 users, or more than 2 million interactions, keep `penalty_of`.
    """
    penalty = penalty_of(matrix, confidence)
    users, items = sample_held_out(matrix)
    distinct = len(users.unique())
    if distinct < _MIN_USERS or len(confidence) > _MAX_HELD_OUT:
        return penalty
    users, items, rows = users[:distinct], items[:distinct], matrix.users
    keep = ~torch.isin(rows * matrix.num_items + matrix.items, users * matrix.num_items + items)
    rest = InteractionMatrix(starts(rows[keep], matrix.num_users), matrix.items[keep], matrix.num_items)
    weights = confidence[keep]
    small = config.model_copy(update={"embedding_dim": min(_HELD_OUT_DIM, config.embedding_dim)})
    best, before = penalty, torch.zeros(distinct, device=confidence.device)
    for factor in (1, 2, 4, 8):
        factors = item_factors(rest, weights, small, factor * penalty, seed=0).to(confidence.device)
        products = regularized_products(factors, factor * penalty)
        gains = _gains(rest, users, items, user_factors(rest, weights, factors, products)[users], factors)
        change = gains - before
        if factor > 1 and change.mean() <= change.std() / math.sqrt(distinct):
            break
        best, before = factor * penalty, gains
    return best


def _gains(matrix: InteractionMatrix, users: Tensor, items: Tensor, vectors: Tensor, factors: Tensor) -> Tensor:
    """Return the NDCG@10 of one held-out item of each user among the unseen items; shape (U,)."""
    gains = []
    for block in torch.arange(len(users), device=users.device).split(_RANKED):
        seen = matrix.of_users(users[block])
        scores = vectors[block] @ factors.T
        scores[rows_of(seen), seen.values] = -torch.inf
        ranks = (scores > scores.gather(1, items[block].unsqueeze(1))).sum(1)
        gains.append(gains_of(ranks))
    return torch.cat(gains)


def alpha_of(matrix: InteractionMatrix, strengths: Tensor) -> float:
    """Return alpha = √(U I / N) / mean r for N interactions of U users and I items, with a root of at most 100.

    The rule was chosen on hold-outs of train (scripts/results/quality_defaults.json).
    """
    if not len(strengths):
        return 1.0
    num_pairs = int(matrix.counts.count_nonzero()) * int(matrix.offsets.diff().count_nonzero())
    return min(_MAX_ALPHA, math.sqrt(num_pairs / len(strengths))) / float(strengths.double().mean())


def penalty_of(matrix: InteractionMatrix, confidence: Tensor) -> float:
    """Return a penalty that grows with the weight of the interactions: λ = (Σ c_u² Σ c_i²)^¼ / √Σ c.

    c_u and c_i are sums of confidence over the interactions of a user and of an item; λ² is the geometric mean of c_u and
    c_i, each averaged over interactions. The power was chosen on hold-outs of train of seven data sets
    (scripts/results/quality_defaults.json).
    """
    if not len(confidence):
        return 1.0
    weights = confidence.double()
    squares = [torch.bincount(ids, weights).square().sum() for ids in (matrix.users, matrix.items)]
    return float((squares[0] * squares[1]) ** 0.25 / weights.sum().sqrt())


def _blocks(matrix: InteractionMatrix, width: int) -> Iterator[Tensor]:
    """Yield users with a history in blocks of bounded size, with histories of similar length."""
    counts = matrix.offsets.diff()
    order = counts.argsort(descending=True)[: int((counts > 0).sum())]
    start = 0
    while start < len(order):
        longest = int(counts[order[start]])
        stop = start + max(1, _BLOCK // (width * max(longest, width)))
        yield order[start:stop]
        start = stop
