"""Scores of all candidates for rankings, from any kind of model."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.errors import TrainingError
from recsys_cli.evaluation.held_out import HeldOut
from recsys_cli.features.schema import PADDING, Role, Schema
from recsys_cli.loader import DimensionTables
from recsys_cli.models.model import Model

NOT_A_NUMBER = "train again with a lower train.learning_rate or with train.precision=fp32"
"""Hint for a model with non-finite scores."""
_NOT_FINITE = "the model's score of a user-item pair is not finite"
_SAFE_MAGNITUDE = 1e15
"""Dot products of vectors with smaller elements are finite, for any number of dimensions."""


def why_not(
    model: Model, held_out: HeldOut, tables: DimensionTables, schema: Schema, *, device: torch.device | str
) -> str | None:
    """Return the reason against a ranking as a clause without a full stop; None if the model can rank."""
    if not len(held_out.user_idx) or not len(held_out.candidates):
        return "no user of train has relevant held-out items in this split"
    return cannot_rank(model, tables, schema, device=device)


def cannot_rank(model: Model, tables: DimensionTables, schema: Schema, *, device: torch.device | str) -> str | None:
    """Return the reason why a model cannot score unseen items, as a clause without a full stop; None if it can."""
    if model.scoring != "pairs":
        return None
    padding = torch.full((1,), PADDING, dtype=torch.int32, device=device)
    available = tables.join({schema.only(Role.USER).name: padding, schema.only(Role.ITEM).name: padding})
    missing = [column.name for column in schema.features if column.name not in available]
    if missing:
        return (
            f"candidates have no interaction features, but the model needs {', '.join(missing)}; to rank, leave them out of "
            "features.ops, prepare and train again; to score rows, keep them"
        )
    return None


class ModelScorer:
    """Scores the cross product of users and candidates: by the model's own method, or pair by pair in tiles.

    A tile has about as many users as items: models that process each distinct id of a batch once (a lookup, the first
    dense layer) then do the least work. Candidate vectors are computed once, so a scorer is valid only while the model
    does not change.

    Content-based models score cold items of the joined table. For all other models cold items rank last, with the
    lowest score.

    Args:
        model: In evaluation mode, on the tables' device.
        candidates: Encoded items, followed by table rows of cold items; shape (I,), on the tables' device.
        batch_size: Maximum pairs in a tile; affects only memory.
    """

    def __init__(
        self, model: Model, tables: DimensionTables, schema: Schema, candidates: Tensor, *, batch_size: int
    ) -> None:
        self._model = model
        self._tables = tables
        self._user, item = schema.only(Role.USER).name, schema.only(Role.ITEM)
        self._item = item.name
        # Cold items are the last candidates.
        num_scored = len(candidates) if model.by_content else int((candidates < int(item.cardinality or 0)).sum())
        self._items = candidates[:num_scored].to(torch.int32)
        self._num_last = len(candidates) - num_scored
        self._batch_size = batch_size
        self._vectors: Tensor | None = None

    def __call__(self, user_idx: npt.NDArray[np.int64]) -> Tensor:
        """Return the scores of U users for all candidates, shape (U, I).

        Raises:
            TrainingError: A score is not finite.
        """
        users = torch.from_numpy(user_idx).to(self._items.device)
        with torch.inference_mode():
            if self._model.scoring == "dot_product":
                return self._with_last(self._by_vector(users))
            if self._model.scoring == "pairs":
                scores = self._by_pair(users.to(torch.int32))
            else:
                scores = self._model.scores(users, self._items.long())
            # A finite sum implies finite scores; the slow check of each score follows only a sum that overflowed.
            if not (torch.isfinite(scores.sum()) or torch.isfinite(scores).all()):
                raise TrainingError(_NOT_FINITE, hint=NOT_A_NUMBER)
            return self._with_last(scores)

    def _with_last(self, scores: Tensor) -> Tensor:
        """Append the scores of cold items, in the same memory layout."""
        if not self._num_last:
            return scores
        lowest = scores.amin(dim=1) if scores.shape[1] else scores.new_zeros(len(scores))
        if scores.stride(1) == 1:
            return torch.cat([scores, lowest[:, None].expand(-1, self._num_last)], dim=1)
        return torch.cat([scores.T, lowest.expand(self._num_last, -1)]).T

    @property
    def item_vectors(self) -> Tensor:
        """Vectors of the scored candidates of a dot-product model, computed once; shape (S, D)."""
        if self._vectors is None:
            with torch.inference_mode():
                self._vectors = self._model.item_vectors(self._items.long())
                _check_finite(self._vectors)
        return self._vectors

    def reuse(self, vectors: Tensor, changed: Tensor) -> None:
        """Take over `item_vectors` of the first candidates, and compute those of changed and of further ones."""
        with torch.inference_mode():
            further = torch.arange(len(vectors), len(self._items))
            places = torch.cat([changed, further])
            own = torch.cat([vectors, vectors.new_empty((len(further), vectors.shape[1]))])
            if len(places):
                own[places] = self._model.item_vectors(self._items[places].long())
            _check_finite(own)
            self._vectors = own

    def _by_vector(self, users: Tensor) -> Tensor:
        items, vectors = self.item_vectors, self._model.user_vectors(users)
        _check_finite(vectors)
        return (items @ vectors.T).T  # contiguous scores of a candidate make the fastest rankings

    def _by_pair(self, users: Tensor) -> Tensor:
        scores = torch.empty((len(users), len(self._items)), device=users.device)
        num_users = min(len(users), max(1, math.isqrt(self._batch_size)))
        num_items = max(1, self._batch_size // num_users)
        for first in range(0, len(users), num_users):
            for start in range(0, len(self._items), num_items):
                tile = scores[first : first + num_users, start : start + num_items]
                tile.copy_(self._tile(users[first : first + num_users], self._items[start : start + num_items]))
        return scores

    def _tile(self, users: Tensor, items: Tensor) -> Tensor:
        """Score each user-item pair as a row of one batch."""
        ids = {self._user: users.repeat_interleave(len(items)), self._item: items.repeat(len(users))}
        logits = self._model.score(Batch(self._tables.join(ids), {}))
        return logits.view(len(users), len(items))


def _check_finite(vectors: Tensor) -> None:
    """Raise if products of the vectors could overflow: a check of the products would take far longer."""
    if vectors.numel() and not vectors.abs().amax() < _SAFE_MAGNITUDE:
        raise TrainingError(_NOT_FINITE, hint=NOT_A_NUMBER)
