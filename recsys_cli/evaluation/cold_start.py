"""Scores for users whom train does not know, by what a system can make of them.

A model that makes what it knows of a user from the user's history has what happened before the split: the user is lent an id
of the data, and `begin` tells the model that history. Any other model knows nothing of the user: what stands in its tables for
users without an id has learnt nothing. So all items score alike there, and a ranking of equal scores is that by popularity. A
model that looks at features scores new users whom the joined table has by theirs.
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
    """Lends ids of the data to new users, to as many at a time as there are ids.

    Attributes:
        users: The new users that are ranked for, by their ids, ascending; shape (S,).
        history: What happened before, in rows of which some are theirs.
        ids: Those that can be lent.
        join: Returns the features of ids, as models ask for them.
    """

    users: Ints
    history: Interactions
    ids: range
    join: Callable[[Mapping[str, Tensor]], Mapping[str, Feature]]

    def place(self, user_idx: Ints) -> tuple[Ints, Ints]:
        """Return for each user the number of the loan, and the id that is lent then; user_idx (U,), both (U,)."""
        number, place = np.divmod(np.searchsorted(self.users, user_idx), len(self.ids))
        return number, place + self.ids.start

    def begin(self, number: int, model: Model) -> None:
        """Tell a model the history of the users of a loan, under the ids that are lent to them."""
        size = len(self.ids)
        users = self.users[number * size : (number + 1) * size]
        rows = self.history.chosen(np.isin(self.history.user_idx, users))
        lent = (np.searchsorted(users, rows.user_idx) + self.ids.start).astype(np.int32)
        model.set_context(TrainingContext(lambda: replace(rows, user_idx=lent), self.join))


@dataclass
class FoldInScorer:
    """A scorer that takes the ids of new users as well; when it is done, a model that folds in has begun with their history.

    Attributes:
        model: What scores.
        make: Returns a scorer of the model as it is.
        new: Whom train does not know.
        loans: Lends them ids.
        candidates: Encoded items, shape (I,), on the device to rank on.
    """

    model: Model
    make: Callable[[], Scorer]
    new: NewUsers
    loans: TemporaryIds
    candidates: Tensor
    _begun: int | None = field(default=None, init=False)
    _scorer: Scorer | None = field(default=None, init=False)

    def __call__(self, user_idx: npt.NDArray[np.int64]) -> Tensor:
        """Return the scores of U users, ascending and none lower than in the call before, for all candidates; shape (U, I)."""
        num_known = int(np.searchsorted(user_idx, self.new.first))
        parts = [self._known(user_idx[:num_known])] if num_known else []
        unknown = user_idx[num_known:]
        if len(unknown) and not (self.model.folds_in and len(self.loans.ids)):
            parts.append(self._by_content(self.new.rows_of(unknown)))
        elif len(unknown):
            loans, ids = self.loans.place(unknown)
            parts += [self._lent(int(loan), ids[loans == loan]) for loan in np.unique(loans)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _by_content(self, table_rows: Ints) -> Tensor:
        """Return the scores of new users by their features, from their rows of the joined table; equal ones without a row."""
        scores = torch.zeros(len(table_rows), len(self.candidates), device=self.candidates.device)
        described = np.flatnonzero(table_rows >= 0) if self.model.by_content else table_rows[:0]
        if len(described):
            scores[torch.from_numpy(described).to(scores.device)] = self._known(table_rows[described])
        return scores

    def _known(self, user_idx: Ints) -> Tensor:
        if self._scorer is None:
            self._scorer = self.make()
        return self._scorer(user_idx)

    def _lent(self, loan: int, ids: Ints) -> Tensor:
        if loan != self._begun:
            self.loans.begin(loan, self.model)
            self._begun, self._scorer = loan, None  # what a scorer keeps is of the model as it was
        return self._known(ids)
