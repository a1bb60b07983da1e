"""How rankings get their scores from a model, which may only be asked for rows."""

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
"""What to do about a model whose scores are not finite."""
_NO_NUMBER = "the model scores some pair of user and item with no number"
_MODERATE = 1e15
"""Products of vectors whose numbers are smaller than it are finite, however long the vectors are."""


def why_not(
    model: Model, held_out: HeldOut, tables: DimensionTables, schema: Schema, *, device: torch.device | str
) -> str | None:
    """Return why a model cannot rank, or that there is nothing to rank, as a sentence without its dot; None where it can."""
    if not len(held_out.user_idx) or not len(held_out.candidates):
        return "no user that train knows has anything to find in this split"
    return cannot_rank(model, tables, schema, device=device)


def cannot_rank(model: Model, tables: DimensionTables, schema: Schema, *, device: torch.device | str) -> str | None:
    """Return why a model cannot score items that a user has not met, as a sentence without its dot; None where it can."""
    if model.scoring != "pairs":
        return None
    nobody = torch.full((1,), PADDING, dtype=torch.int32, device=device)
    known = tables.join({schema.only(Role.USER).name: nobody, schema.only(Role.ITEM).name: nobody})
    unknown = [column.name for column in schema.features if column.name not in known]
    if unknown:
        return f"{', '.join(unknown)} belongs to an interaction, so it is not known for items not met yet"
    return None


class ModelScorer:
    """Scores the cross product of users and candidates with a model: by its own way to do so, or pair by pair in tiles.

    A tile has about as many users as items: models that look at each distinct id of a batch once (a lookup, the first
    dense layer) then have very little to look at. Vectors of the candidates are asked for once, so a scorer is good for a
    model that does not change meanwhile.

    Of items that train does not know a model that looks at features scores those that the joined table has. For all other
    models they come last, equal to what they score lowest.

    Args:
        model: In evaluation mode, on the tables' device.
        tables: Features by id.
        schema: Names the user and the item column.
        candidates: Encoded items, and behind them rows of the joined table that train does not know; shape (I,), on the tables'
            device.
        batch_size: Pairs of a tile at most; changes nothing but memory.
    """

    def __init__(
        self, model: Model, tables: DimensionTables, schema: Schema, candidates: Tensor, *, batch_size: int
    ) -> None:
        self._model = model
        self._tables = tables
        self._user, item = schema.only(Role.USER).name, schema.only(Role.ITEM)
        self._item = item.name
        # Cold items stand last among candidates.
        num_scored = len(candidates) if model.by_content else int((candidates < int(item.cardinality or 0)).sum())
        self._items = candidates[:num_scored].to(torch.int32)
        self._num_last = len(candidates) - num_scored
        self._batch_size = batch_size
        self._vectors: Tensor | None = None

    def __call__(self, user_idx: npt.NDArray[np.int64]) -> Tensor:
        """Return the scores of U users for all candidates, shape (U, I).

        Raises:
            TrainingError: A score is not a finite number.
        """
        users = torch.from_numpy(user_idx).to(self._items.device)
        with torch.inference_mode():
            if self._model.scoring == "dot_product":
                return self._with_last(self._by_vector(users))
            scores = self._by_model(users)
            # A sum is finite if all are, but for overflow; looking at each one would take longer than ranking them.
            if not (torch.isfinite(scores.sum()) or torch.isfinite(scores).all()):
                raise TrainingError(_NO_NUMBER, hint=NOT_A_NUMBER)
            return self._with_last(scores)

    def _with_last(self, scores: Tensor) -> Tensor:
        """Return scores (U, S) and behind them those of items that the model knows nothing of; laid out as they are."""
        if not self._num_last:
            return scores
        lowest = scores.amin(dim=1) if scores.shape[1] else scores.new_zeros(len(scores))
        if scores.stride(1) == 1:
            return torch.cat([scores, lowest[:, None].expand(-1, self._num_last)], dim=1)
        return torch.cat([scores.T, lowest.expand(self._num_last, -1)]).T

    def _by_vector(self, users: Tensor) -> Tensor:
        if self._vectors is None:
            self._vectors = self._model.item_vectors(self._items.long())
            _look_at(self._vectors)
        vectors = self._model.user_vectors(users)
        _look_at(vectors)
        return (self._vectors @ vectors.T).T  # so that a candidate's scores are neighbours: rankings are fastest then

    def _by_model(self, users: Tensor) -> Tensor:
        if self._model.scoring != "pairs":
            return self._model.scores(users, self._items.long())
        return self._by_pair(users.to(torch.int32))

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
        """Score every user for every item, each pair as a row of one batch; shape (U, I)."""
        ids = {self._user: users.repeat_interleave(len(items)), self._item: items.repeat(len(users))}
        logits = self._model.score(Batch(self._tables.join(ids), {}))
        return logits.view(len(users), len(items))


def _look_at(vectors: Tensor) -> None:
    """Stop where vectors could make a product that is not finite: looking at the products would take far longer."""
    if vectors.numel() and not vectors.abs().amax() < _MODERATE:
        raise TrainingError(_NO_NUMBER, hint=NOT_A_NUMBER)
