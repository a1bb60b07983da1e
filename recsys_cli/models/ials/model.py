"""Vectors of items by the library `implicit`; those of users follow from what they have met, so that a longer history counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import MissingExtraError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.ials.config import Config
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.model import ClosedFormModel, Progress, TrainingContext, unheard

_BLOCK = 1 << 23
"""Numbers that are held at once while users are solved for."""


class Model(ClosedFormModel):
    """The vectors of items are learnt; a user's is the best one for them and for what the user has met (Hu et al. 2008, eq. 4)."""

    scoring = "dot_product"
    folds_in = True
    items: Tensor
    penalty: Tensor

    def __init__(self, config: Config, schema: Schema) -> None:
        super().__init__()
        self.config = config
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.register_buffer("items", torch.zeros(int(self.item.cardinality or 0), config.embedding_dim))
        self.register_buffer("penalty", torch.tensor(config.regularization or 1.0))
        self._users = torch.zeros(int(self.user.cardinality or 0), config.embedding_dim)

    def fit(self, context: TrainingContext, *, progress: Progress = unheard) -> None:
        """Alternate between users and items.

        Raises:
            MissingExtraError: `implicit` is not installed.
        """
        try:
            from implicit.cpu.als import AlternatingLeastSquares  # it takes a second, and who only scores needs it not
            from scipy.sparse import csr_matrix
            from threadpoolctl import threadpool_limits
        except ImportError as error:
            raise MissingExtraError.for_extra("implicit", what="model.name=ials") from error
        config, (matrix, confidence) = self.config, self._confidence(context)
        if config.regularization is None:
            self.penalty.fill_(penalty_of(matrix, confidence))
            self.chosen = {"regularization": float(self.penalty)}
        offsets, met = matrix.offsets.cpu().numpy(), matrix.items.cpu().numpy().astype(np.int32)
        seen = csr_matrix((confidence.cpu().numpy(), met, offsets), shape=(matrix.num_users, matrix.num_items))
        with threadpool_limits(1, "blas"):  # it has threads of its own, and warns of BLAS's as it is made
            library = AlternatingLeastSquares(
                factors=config.embedding_dim, regularization=float(self.penalty), iterations=config.iterations,
                alpha=1.0,  # its alpha is a factor of what it gets, which is the whole confidence c and not c - 1
                random_state=int(torch.randint(2**31, ())),
            )  # fmt: skip
            library.fit(seen, show_progress=False, callback=lambda done, *_: progress(done + 1, config.iterations))
        self.items.copy_(torch.from_numpy(library.item_factors))

    def set_context(self, context: TrainingContext) -> None:
        """Solve for the vectors of all users by what they have met by now."""
        matrix, confidence = self._confidence(context)
        self._users = torch.zeros(matrix.num_users, self.config.embedding_dim, device=self.device)
        all_items = self.items.T @ self.items
        all_items.diagonal().add_(self.penalty)
        for users in _blocks(matrix, self.config.embedding_dim):
            lists = matrix.of_users(users, confidence)
            assert lists.weights is not None
            longest = int(lists.offsets.diff().max())
            ids, there = lists.padded(longest)
            weights, _ = Ragged(lists.weights, lists.offsets).padded(longest)
            vectors = self.items[ids] * there.unsqueeze(2)
            left = all_items + vectors.mT @ (vectors * (weights - 1).unsqueeze(2))
            right = (vectors * weights.unsqueeze(2)).sum(1, keepdim=True).mT
            self._users[users] = torch.cholesky_solve(right, torch.linalg.cholesky(left)).squeeze(2)

    def score(self, batch: Batch) -> Tensor:
        """Return the product of the vectors of each row's user and item; shape (B,)."""
        users, items = batch.features[self.user.name], batch.features[self.item.name]
        assert isinstance(users, Tensor)
        assert isinstance(items, Tensor)
        return (self.user_vectors(users.long()) * self.item_vectors(items.long())).sum(1)

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return the vectors of users, shape (U, D); zeros for who has met nothing."""
        return self._users[users]

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return the vectors of items, shape (I, D); zeros for those that nobody has met."""
        return self.items[items]

    def _confidence(self, context: TrainingContext) -> tuple[InteractionMatrix, Tensor]:
        """Return who has met what, and the confidence c = 1 + alpha r of each element."""
        matrix, strengths = InteractionMatrix.with_strengths(
            context.interactions(), self.user, self.item, positive_only=self.config.positive_only, device=self.device
        )
        return matrix, 1 + self.config.alpha * strengths


def penalty_of(matrix: InteractionMatrix, confidence: Tensor) -> float:
    """Return a penalty that grows with how much interactions weigh: λ = 0.04 √(Σ c_u² Σ c_i²) / Σ c.

    The confidence c is summed over a user's interactions, an item's, and all. What is squared is summed over users and over items:
    averaged over interactions that is the weight of a user, and of an item. The factor was chosen on hold-outs of five data sets.
    """
    if not len(confidence):
        return 1.0
    weights = confidence.double()
    users = torch.arange(matrix.num_users, device=weights.device).repeat_interleave(matrix.offsets.diff())
    squares = [torch.bincount(ids, weights).square().sum() for ids in (users, matrix.items)]
    return float(0.04 * (squares[0] * squares[1]).sqrt() / weights.sum())


def _blocks(matrix: InteractionMatrix, width: int) -> Iterator[Tensor]:
    """Yield the users who have met something, those with equally much together, in blocks of bounded size."""
    counts = matrix.offsets.diff()
    order = counts.argsort(descending=True)[: int((counts > 0).sum())]
    start = 0
    while start < len(order):
        longest = int(counts[order[start]])
        stop = start + max(1, _BLOCK // (width * max(longest, width)))
        yield order[start:stop]
        start = stop
