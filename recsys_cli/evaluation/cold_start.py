"""Scores for cold-start users.

A model with fold-in gets their history from before the split, under temporary ids. For any other model, cold-start
users have no learned state: all items score equal, and ties rank by popularity. A content-based model scores them by
their features, if the joined table has a row for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Feature
from recsys_cli.evaluation.held_out import Ints
from recsys_cli.evaluation.new_users import NewUsers
from recsys_cli.evaluation.ranking import Scorer
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import Model, TrainingContext


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
        candidates: Encoded items, shape (I,), on the device of the ranking.
    """

    model: Model
    make: Callable[[], Scorer]
    new: NewUsers
    temporary: TemporaryIds
    candidates: Tensor
    _group: int | None = field(default=None, init=False)
    _scorer: Scorer | None = field(default=None, init=False)

    def __call__(self, user_idx: npt.NDArray[np.int64]) -> Tensor:
        """Return the scores of U users for all candidates, (U, I); users ascend within a call and over all calls."""
        num_known = int(np.searchsorted(user_idx, self.new.first))
        parts = [self._score(user_idx[:num_known])] if num_known else []
        cold = user_idx[num_known:]
        if len(cold) and not (self.model.folds_in and len(self.temporary.ids)):
            parts.append(self._by_content(self.new.rows_of(cold)))
        elif len(cold):
            groups, ids = self.temporary.assign(cold)
            parts += [self._by_history(int(group), ids[groups == group]) for group in np.unique(groups)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _by_content(self, table_rows: Ints) -> Tensor:
        """Return content-based scores from rows of the joined table; users without a row (-1) score all items equal."""
        scores = torch.zeros(len(table_rows), len(self.candidates), device=self.candidates.device)
        with_features = np.flatnonzero(table_rows >= 0) if self.model.scores_users_by_features else table_rows[:0]
        if len(with_features):
            scores[torch.from_numpy(with_features).to(scores.device)] = self._score(table_rows[with_features])
        return scores

    def _score(self, user_idx: Ints) -> Tensor:
        if self._scorer is None:
            self._scorer = self.make()
        return self._scorer(user_idx)

    def _by_history(self, group: int, ids: Ints) -> Tensor:
        if group != self._group:
            self.temporary.set_history(group, self.model)
            self._group, self._scorer = group, None  # a scorer caches vectors of the model's former context
        return self._score(ids)
