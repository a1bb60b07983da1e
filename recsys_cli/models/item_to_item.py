"""What models share that know how near items are to each other: a user's score for an item is the sum over what the user has met.

Such a model needs no vector of the user, so that a longer history is folded in without learning anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Ragged
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.history import History, spans
from recsys_cli.models.model import Fitted, Known, LeftOut, Progress, Recommender, unheard

_MOST = 1 << 22
"""Elements of histories that are looked at together."""


class ItemWeights(nn.Module, ABC):
    """What was learnt about C items, which are numbered from 0: the weight of each for each."""

    @abstractmethod
    def sums(self, met: Ragged) -> Tensor:
        """Return for each user and each item the sum of the weights between what the user has met and the item.

        Args:
            met: The items of U users.

        Returns:
            Shape (U, C), float32.
        """

    @abstractmethod
    def sums_of_pairs(self, met: Ragged, items: Tensor) -> Tensor:
        """Return the same for one item a user; items (U,), sums (U,)."""


class ItemToItem(Fitted, Recommender):
    """A model whose score is the sum of the weights between what the user has met and the item.

    Items that are not among those it knows have the score 0, and so has everything for a user who has met nothing.

    Args:
        schema: Has a user and an item.
        positive_only: Let only positive interactions count, as `Interactions.positive` says which these are.
        max_items: How many items it knows at most, the ones that most users have met; None for all.
    """

    folds_in = True
    kept: Tensor
    learnt: ItemWeights

    def __init__(self, schema: Schema, *, positive_only: bool, max_items: int | None) -> None:
        super().__init__()
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self._positive_only = positive_only
        self._met: History | None = None
        self._place = torch.empty(0, dtype=torch.int64)
        own = len(self.item.own_ids)
        self.register_buffer("kept", torch.zeros(own if max_items is None else min(own, max_items), dtype=torch.int64))

    @property
    def num_items(self) -> int:
        """C, how many items it knows."""
        return len(self.kept)

    @abstractmethod
    def learn(self, history: History, progress: Progress) -> None:
        """Set `learnt`.

        Args:
            history: Of train, with items numbered from 0 to C - 1, the most popular first.
            progress: Hears how it goes.
        """

    def fit(self, known: Known, *, progress: Progress = unheard) -> None:
        """Choose the items and learn their weights."""
        history = self._history(known)
        counts = history.counts[self.item.own_ids.start : self.item.own_ids.stop]
        order = counts.argsort(descending=True, stable=True)
        self.kept.copy_(order[: self.num_items] + self.item.own_ids.start)
        self._number_items()
        self.learn(history.renamed(self._place, num_items=self.num_items), progress)

    def begin(self, known: Known) -> None:
        """Take in what users have met by now."""
        self._number_items()
        history = self._history(known)
        self.left_out = self._left_out(history)
        self._met = history.renamed(self._place, num_items=self.num_items)

    def score(self, batch: Batch) -> Tensor:
        """Return the sum for each row, shape (B,); after `begin`."""
        users, items = batch.features[self.user.name], batch.features[self.item.name]
        assert isinstance(users, Tensor)
        assert isinstance(items, Tensor)
        assert self._met is not None, "begin comes first"
        users, places = users.long(), self._place[items.long()]
        scores = torch.zeros(len(places), device=places.device)
        for rows in spans(self._met.offsets_of(users), most=_MOST):
            scores[rows] = self.learnt.sums_of_pairs(self._met.of_users(users[rows]), places[rows].clamp(min=0))
        return scores.masked_fill(places < 0, 0.0)

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the sum for each user and item, shape (U, I)."""
        assert self._met is not None, "begin comes first"
        sums = self.learnt.sums(self._met.of_users(users))
        return F.pad(sums, (0, 1))[:, self._place[items]]  # the place -1 is that of the zeros behind

    def _history(self, known: Known) -> History:
        return History.of(
            known.interactions(), self.user, self.item, positive_only=self._positive_only, device=self.device
        )

    def _left_out(self, history: History) -> LeftOut | None:
        """Count items of a history that are not among those with weights."""
        counts = history.counts
        others = counts.clone()
        others[self.kept] = 0
        items, interactions = int(others.count_nonzero()), float(others.sum())
        if not items:
            return None
        return LeftOut(items, int(counts.count_nonzero()), interactions / float(counts.sum()))

    def _number_items(self) -> None:
        self._place = torch.full((int(self.item.cardinality or 0),), -1, device=self.device)
        self._place[self.kept] = torch.arange(self.num_items, device=self.device)


class DenseWeights(ItemWeights):
    """A weight of every item for every other.

    Args:
        num_items: C; it takes 4 C² bytes.
    """

    weights: Tensor

    def __init__(self, num_items: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.zeros(num_items, num_items))

    def sums(self, met: Ragged) -> Tensor:
        """Add up rows of the weights."""
        return add_rows(self.weights, met)

    def sums_of_pairs(self, met: Ragged, items: Tensor) -> Tensor:
        """Pick weights one by one."""
        row = rows_of(met)
        return torch.zeros(len(items), device=items.device).index_add_(0, row, self.weights[met.values, items[row]])


def add_rows(table: Tensor, lists: Ragged) -> Tensor:
    """Return the sum of a table's rows for each list of row numbers; table (N, D), sums (U, D)."""
    return F.embedding_bag(lists.values, table, lists.offsets, mode="sum", include_last_offset=True)


def rows_of(lists: Ragged) -> Tensor:
    """Return which list each element is of; shape (N,)."""
    return torch.arange(len(lists.offsets) - 1, device=lists.offsets.device).repeat_interleave(lists.offsets.diff())


def gram(history: History, *, block: int = 1 << 23, out: Tensor | None = None) -> Tensor:
    """Return how many users have met both items of each pair, exactly; shape (C, C), float32.

    Rows of users are multiplied with their zeros: that is faster than it looks, and it is what graphics cards are for.

    Args:
        history: Of C items, and of fewer than 2**24 users.
        block: How many numbers of rows are held at once.
        out: Where to write it; shape (C, C), float32.
    """
    size = history.num_items
    counts = torch.zeros(size, size, device=history.items.device) if out is None else out.zero_()
    step = max(1, block // max(1, size))
    for start in range(0, history.num_users, step):
        rows = history.dense(start, min(start + step, history.num_users))
        counts.addmm_(rows.T, rows)
    return counts
