"""A small world with an order: what a user meets next follows from the last item and from taste, by chances that are known.

    P(next = j | last = i, user u) = ORDER * follows[i, j] + (1 - ORDER) * taste[u, j]

over the items that the user has not met, for nothing is met twice. The project's own generator plants no such thing: there,
which of two items comes first is chance.

Figures are expected ones. They are computed from these chances, not from items that were drawn, so no ranking gets beyond the
best one, not even by chance.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recsys_cli.features.schema import FIRST, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import TrainingContext

USERS, ITEMS, MET, GROUPS = 800, 100, 20, 5
"""Each user has met so many items; tastes are for one of so many groups of items."""
ORDER = 0.5
FOLLOWERS = (0.6, 0.3, 0.1)
"""How likely each follower of an item is, where the next one goes by order."""
K = 10
Floats = NDArray[np.float64]


def _ids(name: str, role: Role, size: int) -> Column:
    return Column(name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=size + FIRST, vocabulary=name)


SCHEMA = Schema(
    columns=(
        _ids("user", Role.USER, USERS),
        _ids("item", Role.ITEM, ITEMS),
        Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
        Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64"),
    )
)


class OrderedWorld:
    """What all users have met, one item after the other, and how likely each item is to be the next one.

    Attributes:
        met: Items from 0, in the order in which they were met; shape (users, MET).
        nexts: How likely each item comes next, 0 for those that were met; shape (users, items).
    """

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self.follows = np.zeros((ITEMS, ITEMS))
        for chance in FOLLOWERS:  # by permutations: nothing follows more often than other things, as far as order goes
            self.follows[np.arange(ITEMS), self._rng.permutation(ITEMS)] += chance
        self.taste = self._tastes()
        items = [self.draw(self.taste)]
        while len(items) < MET:
            items.append(self.draw(self._nexts(items)))
        self.met = np.stack(items, axis=1)
        self.nexts = self._nexts(items)

    def draw(self, chances: Floats) -> NDArray[np.int64]:
        """Draw an item for each user by chances (users, items) that add up to 1."""
        bounds = chances.cumsum(axis=1)
        return (bounds < self._rng.random((USERS, 1)) * bounds[:, -1:]).sum(axis=1)

    def known(self, *, shuffled: bool = False) -> TrainingContext:
        """All that was met, in rows of no order; `shuffled` at times that are exchanged among the items of each user."""
        times = np.broadcast_to(np.arange(MET), self.met.shape)
        if shuffled:
            times = np.random.default_rng(1).permuted(times, axis=1)
        rows = np.random.default_rng(2).permutation(self.met.size)
        users = np.repeat(np.arange(USERS) + FIRST, MET).astype(np.int32)[rows]
        items, at = (self.met + FIRST).ravel().astype(np.int32)[rows], times.ravel()[rows].astype(np.int64)
        interactions = Interactions(users, items, np.ones(len(rows), np.float32), times=at)
        return TrainingContext(lambda: interactions, dict)

    # -- how well the next item can be told ----------------------------------------------------------------------------

    def ndcg(self, scores: NDArray[np.floating]) -> float:
        """The NDCG that is to be expected of scores (users, items) at the next item, those that were met left out."""
        return float((self._told(scores) @ (1 / np.log2(np.arange(2, K + 2)))).mean())

    def hit_rate(self, scores: NDArray[np.floating]) -> float:
        """The hit rate that is to be expected."""
        return float(self._told(scores).sum(axis=1).mean())

    def part_of_the_way(self, scores: NDArray[np.floating]) -> float:
        """How far scores come from the best ranking that is the same for everybody, 0, to the best one, 1; by NDCG."""
        start, end = (self.ndcg(best) for best in (self.same_for_all, self.nexts))
        return (self.ndcg(scores) - start) / (end - start)

    @cached_property
    def same_for_all(self) -> Floats:
        """The best scores that look at no user."""
        return np.broadcast_to(self.nexts.sum(axis=0), self.nexts.shape)

    @cached_property
    def without_order(self) -> Floats:
        """The true chances, of somebody who knows what was met, but takes each of it for the last one as soon as another."""
        return ORDER * self.follows[self.met].mean(axis=1) + (1 - ORDER) * self.taste

    @cached_property
    def without_users(self) -> Floats:
        """The true chances, of somebody who knows the last item and nothing else."""
        return ORDER * self.follows[self.met[:, -1]] + (1 - ORDER) * self.taste.mean(axis=0)

    def _told(self, scores: NDArray[np.floating]) -> Floats:
        """How likely the item at each of K places is the one that comes; shape (users, K)."""
        hidden = scores.astype(np.float64)
        np.put_along_axis(hidden, self.met, -np.inf, axis=1)
        best = np.argsort(-hidden, axis=1, kind="stable")[:, :K]
        return np.take_along_axis(self.nexts, best, axis=1)

    # -- how it comes about --------------------------------------------------------------------------------------------

    def _tastes(self) -> Floats:
        """How likely users meet items for taste: those of a group alone, some more popular than others."""
        popularity = 1 / (self._rng.permutation(ITEMS) + 10)
        liked = self._rng.integers(0, GROUPS, (USERS, 1)) == np.arange(ITEMS) % GROUPS
        taste = liked * popularity
        return np.asarray(taste / taste.sum(axis=1, keepdims=True))

    def _nexts(self, items: list[NDArray[np.int64]]) -> Floats:
        """How likely each item comes after these, which each have shape (users,)."""
        chances = ORDER * self.follows[items[-1]] + (1 - ORDER) * self.taste
        np.put_along_axis(chances, np.stack(items, axis=1), 0, axis=1)
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))
