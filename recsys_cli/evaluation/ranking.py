"""Scores of the catalog by any model, and rankings for blocks of users: no loop over users, memory bounded by the block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature
from recsys_cli.errors import TrainingError
from recsys_cli.evaluation.held_out import HeldOut, Ints, Lists, UserBlock
from recsys_cli.evaluation.new_users import NewUsers
from recsys_cli.features.schema import PADDING, UNSEEN, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables
from recsys_cli.metrics import Ranked
from recsys_cli.models.cold_items import ColdItemProjection
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.top_lists import top_places

Scorer = Callable[[npt.NDArray[np.int64]], Tensor]
"""Maps U user ids to their scores for all candidates: finite float32 of shape (U, I), on the device of the ranking. The
ranking overwrites them. It is fastest if the scores of a candidate are contiguous in memory."""

BLOCK_SCORES = 1 << 23
"""Scores of a block: 32 MiB. Small blocks stay in the cache, and the C library reuses their memory."""
_USERS = 64
"""Vector products are fastest per user for multiples of this number of users."""
Adjust = Callable[[Tensor], None]
Top = tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]
"""The candidate at each rank, -1 for an empty rank, and whether it is relevant; shape (B, P) each."""


def rank(
    held_out: HeldOut,
    scorer: Scorer,
    *,
    cut_off: int,
    block_scores: int = BLOCK_SCORES,
    progress: Callable[[int], None] | None = None,
) -> tuple[Ranked, int]:
    """Rank the candidates for all users by a system's scores, and count users who have seen all candidates.

    Blocks of `block_scores` affect only memory and speed; `progress` gets the number of finished users.
    """
    size = users_per_block(len(held_out.candidates), block_scores)
    tops = (rank_block(block, scorer, cut_off=cut_off) for block in held_out.blocks(size))
    return gather(tops, held_out, cut_off=cut_off, progress=progress)


def gather(
    tops: Iterator[Top], held_out: HeldOut, *, cut_off: int, progress: Callable[[int], None] | None = None
) -> tuple[Ranked, int]:
    """Gather the rankings of all users from those of their blocks, in order; see `rank`."""
    num_users, stop = len(held_out.user_idx), 0
    places = np.full((num_users, cut_off), -1, dtype=np.int32)
    hits = np.zeros((num_users, cut_off), dtype=bool)
    while stop < num_users and len(held_out.candidates):
        best, found = next(tops)
        start, stop = stop, stop + len(best)
        places[start:stop, : best.shape[1]] = best
        hits[start:stop, : best.shape[1]] = found
        if progress is not None:
            progress(stop)
    num_empty = int(np.count_nonzero(held_out.num_rankable == 0))
    return Ranked(hits, held_out.num_relevant, places, owners=held_out.owners), num_empty


def rank_block(block: UserBlock, scorer: Scorer, *, cut_off: int, adjust: Adjust | None = None) -> Top:
    """Rank the candidates for a block of users; `adjust` as in `score_block`."""
    best, _ = score_block(block, scorer, cut_off=cut_off, adjust=adjust)
    return best.astype(np.int32), contains(block.relevant, best)


def score_block(
    block: UserBlock, scorer: Scorer, *, cut_off: int, adjust: Adjust | None = None
) -> tuple[npt.NDArray[np.int64], Tensor]:
    """Score and rank all candidates for B users, so few that their scores fit into memory; `adjust` changes scores in place.

    Returns:
        best: Index of the candidate at each rank, best first, -1 for an empty rank; shape (B, P), P is at most `cut_off`.
        scores: Score of each candidate, minus infinity for seen items; shape (B, I).
    """
    with torch.inference_mode():
        scores = _hide(block, scorer(block.user_idx))
        if adjust is not None:
            adjust(scores)
        best = top_places(scores, cut_off).cpu().numpy()
    # Hidden candidates are sorted last: a ranking ends after the number of rankable ones.
    best[np.arange(best.shape[1]) >= block.num_rankable[:, None]] = -1
    return best, scores


def users_per_block(num_candidates: int, block_scores: int = BLOCK_SCORES) -> int:
    """Return the number of users of a block."""
    step = max(1, block_scores // max(1, num_candidates))
    return step - step % _USERS if step > _USERS else step


def _hide(block: UserBlock, scores: Tensor) -> Tensor:
    """Set scores of non-rankable candidates to minus infinity, in place if possible."""
    if block.sampled is None:
        if not (scores.is_contiguous() or scores.T.is_contiguous()):
            scores = scores.contiguous()
        scores[_where(block.seen, scores)] = -torch.inf
        return scores
    shown = torch.full_like(scores, -torch.inf)
    for places in (block.sampled, block.relevant):
        index = _where(places, scores)
        shown[index] = scores[index]
    return shown


def _where(places: Lists, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns, in the scores, of the places of their users."""
    user, place = places.block(0, len(scores))
    return torch.from_numpy(user).to(scores.device), torch.from_numpy(place).to(scores.device)


def contains(lists: Lists, places: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return a mask of places in their user's list."""
    user, values = lists.block(0, len(places))
    width = int(max(values.max(initial=0), places.max(initial=0))) + 2
    pairs = user * width + values + 1  # ascending; + 1 gives the padding -1 a number of its own
    queries = np.arange(len(places))[:, None] * width + places + 1
    indices = np.searchsorted(pairs, queries)
    return np.append(pairs, -1)[indices] == queries


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
        self._item, self._num_ids = item.name, int(item.cardinality or 0)
        self._of_projection = model, item, tables.join, candidates.device
        # Cold items are the last candidates.
        num_scored = len(candidates) if model.ranks_cold_items else int((candidates < self._num_ids).sum())
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
                self._vectors = self._vectors_of(self._items.long())
                _check_finite(self._vectors)
        return self._vectors

    def reuse(self, former: ModelScorer, changed: Tensor) -> None:
        """Take over `item_vectors` of the first candidates, and compute those of changed and of further ones."""
        vectors, self._projection = former.item_vectors, former._projection
        with torch.inference_mode():
            further = torch.arange(len(vectors), len(self._items))
            places = torch.cat([changed, further])
            own = torch.cat([vectors, vectors.new_empty((len(further), vectors.shape[1]))])
            if len(places):
                own[places] = self._vectors_of(self._items[places].long())
            _check_finite(own)
            self._vectors = own

    @cached_property
    def _projection(self) -> ColdItemProjection | None:
        return ColdItemProjection(*self._of_projection) if self._model.cold_columns else None

    def _vectors_of(self, items: Tensor) -> Tensor:
        is_cold = items >= self._num_ids
        if not is_cold.any() or self._projection is None:
            return self._model.item_vectors(items)
        vectors = self._model.item_vectors(items.where(~is_cold, UNSEEN))
        vectors[is_cold] = self._projection(items[is_cold], self._tables.join)
        return vectors

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


@dataclass(frozen=True)
class TemporaryIds:
    """Assigns ids of the data to cold-start users, (S,) and ascending, in groups as large as the number of ids."""

    users: Ints
    history: Interactions
    ids: range
    join: Callable[[Mapping[str, Tensor]], Mapping[str, Feature]]

    def assign(self, user_idx: Ints) -> tuple[Ints, Ints]:
        """Return each user's group number and temporary id; user_idx (U,), both (U,)."""
        group, offset = np.divmod(np.searchsorted(self.users, user_idx), len(self.ids))
        return group, offset + self.ids.start

    def set_history(self, group: int, model: Model) -> None:
        """Set a group's history as the model's context."""
        size = len(self.ids)
        users = self.users[group * size : (group + 1) * size]
        rows = self.history.chosen(np.isin(self.history.user_idx, users))
        ids = (np.searchsorted(users, rows.user_idx) + self.ids.start).astype(np.int32)
        model.set_context(TrainingContext(lambda: replace(rows, user_idx=ids), self.join))


@dataclass
class FoldInScorer:
    """Scores known and cold-start users. A model with fold-in ends up with the context of the last group.

    Attributes:
        make: Returns a scorer for the current state of the model.
        context: That of known users, in which the model is at first.
        candidates: Encoded items, shape (I,), on the device of the ranking.
    """

    model: Model
    make: Callable[[], Scorer]
    new: NewUsers
    temporary: TemporaryIds
    context: TrainingContext
    candidates: Tensor
    _group: int | None = field(default=None, init=False)
    _scorer: Scorer | None = field(default=None, init=False)

    def __call__(self, user_idx: npt.NDArray[np.int64]) -> Tensor:
        """Return the scores of U users for all candidates, (U, I); users ascend."""
        num_known = int(np.searchsorted(user_idx, self.new.first))
        parts = [self._score(user_idx[:num_known])] if num_known else []
        cold = user_idx[num_known:]
        if len(cold) and not (self.model.folds_in and len(self.temporary.ids)):
            parts.append(self._by_content(self.new.rows_of(cold)))
        elif len(cold):
            groups, ids = self.temporary.assign(cold)
            parts += [self._score(ids[groups == group], int(group)) for group in np.unique(groups)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _by_content(self, table_rows: Ints) -> Tensor:
        """Return content-based scores from rows of the joined table; users without a row (-1) score all items equal."""
        scores = torch.zeros(len(table_rows), len(self.candidates), device=self.candidates.device)
        with_features = np.flatnonzero(table_rows >= 0) if self.model.scores_users_by_features else table_rows[:0]
        if len(with_features):
            scores[torch.from_numpy(with_features).to(scores.device)] = self._score(table_rows[with_features])
        return scores

    def _score(self, user_idx: Ints, group: int | None = None) -> Tensor:
        """Return scores in the context of known users, or of a group of cold-start users with temporary ids."""
        if group != self._group:
            if group is None:
                self.model.set_context(self.context)
            else:
                self.temporary.set_history(group, self.model)
            self._group, self._scorer = group, None  # a scorer caches vectors of the model's former context
        if self._scorer is None:
            self._scorer = self.make()
        return self._scorer(user_idx)
