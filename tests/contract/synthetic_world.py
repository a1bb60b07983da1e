"""A small world of the project's own generator: rows to learn from, and what may be known of the others at best.

Nothing here is a figure that was seen: ceilings and what is left without tastes are computed from the generator's own truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.data.planted import END, NOISE, TASTE_DIM, YEAR, PlantedWorld, Ratings, _offset
from recsys_cli.data.synthetic import SyntheticOptions
from recsys_cli.features.schema import FIRST, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.metrics.labels import AUC
from recsys_cli.metrics.metric import Hits
from recsys_cli.metrics.rankings import ndcg
from recsys_cli.models.model import TrainingContext

OPTIONS = SyntheticOptions(users=250, items=250, rows=28_000)
HELD_OUT = 0.2
LIKED = 6
"""Half stars above which a rating is a like: `rating > 3`, as in the shipped configs."""
K = 10


def _categorical(name: str, role: Role, size: int, **options: object) -> Column:
    return Column(
        name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=size + FIRST, vocabulary=name, **options
    )  # fmt: skip


SCHEMA = Schema(
    columns=(
        _categorical("user", Role.USER, OPTIONS.users),
        _categorical("item", Role.ITEM, OPTIONS.items),
        _categorical("genres", Role.FEATURE, OPTIONS.genres, ragged=True, table="item"),
        Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
        Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64"),
    )
)


def chances(world: PlantedWorld, user: int, time: float) -> np.ndarray:
    """How likely each item is the next one of a user without history, from time 0 (first day) to 1 (last day); shape (items,).

    Rated items are never rated again, and the order of the others does not depend on them. So this is the optimal ranking for
    future ratings.
    """
    bounds = 1 / (np.arange(world.size.items + 1) + _offset(world.size))
    sampled = np.empty(world.size.items)
    sampled[world.charts[world._chart(np.array(time))]] = -np.diff(bounds) / (bounds[0] - bounds[-1])
    liking = world.item_vectors[:, :TASTE_DIM] @ world.user_vectors[user, :TASTE_DIM]
    order = np.argsort(liking)
    cumulative = np.concatenate([[0], np.cumsum(sampled[order])])
    # Of two sampled items the better liked one is kept, of equally liked ones the first.
    worse, no_better = (cumulative[np.searchsorted(liking[order], liking, side)] for side in ("left", "right"))
    return np.asarray(sampled * (worse + no_better))


class SyntheticWorld:
    """Ratings of a world with the generator's own strengths of taste, a fifth of them held out.

    Attributes:
        train: Places of the rows to learn from.
        held_out: Those of the others.
    """

    def __init__(self) -> None:
        self.world = PlantedWorld(OPTIONS)
        self.ratings: Ratings = next(self.world.ratings())
        chosen = np.random.default_rng(0).random(OPTIONS.rows) < HELD_OUT
        self.train, self.held_out = np.flatnonzero(~chosen), np.flatnonzero(chosen)
        self.liked = self.ratings.half_stars > LIKED

    # -- what a model is told ------------------------------------------------------------------------------------------

    def batch(self, rows: np.ndarray) -> Batch:
        """Rows by their places, with features and labels."""
        ids = {
            name: torch.from_numpy(index[rows] + FIRST).int()
            for name, index in (("user", self.ratings.user), ("item", self.ratings.item))
        }
        times = torch.from_numpy(self.ratings.timestamp[rows].astype(np.int64))
        labels = {"label": torch.from_numpy(self.liked[rows].astype(np.float32))}
        return Batch({**self.join(ids), "time": times}, labels)

    def join(self, ids: Mapping[str, Tensor]) -> dict[str, Feature]:
        """Features of ids, as the loader would bring them."""
        features: dict[str, Feature] = dict(ids)
        if "item" in ids:
            own = ids["item"].numpy() - FIRST
            has = self.world.has_genre[own.clip(min=0)] & (own >= 0)[:, None]
            offsets = torch.from_numpy(np.concatenate([[0], has.sum(axis=1).cumsum()]))
            features["genres"] = Ragged(torch.from_numpy(np.nonzero(has)[1] + FIRST).int(), offsets)
        return features

    def interactions(self) -> Interactions:
        """Who met what in train."""
        found, rows = self.ratings, self.train
        users, items = ((index[rows] + FIRST).astype(np.int32) for index in (found.user, found.item))
        return Interactions(users, items, self.liked[rows].astype(np.float32), times=found.timestamp[rows])

    def known(self) -> TrainingContext:
        """All of train."""
        return TrainingContext(self.interactions, self.join, self._parts)

    def _parts(self) -> Iterator[Batch]:
        return (self.batch(rows) for rows in np.array_split(self.train, 8))

    # -- how well the held-out rows can be told ------------------------------------------------------------------------

    def auc(self, scores: np.ndarray) -> float:
        """AUC of scores of the held-out rows."""
        return AUC.of_rows(self.liked[self.held_out], scores)

    @cached_property
    def best_auc(self) -> float:
        """What the noise-free score reaches: nobody knows more, but by chance."""
        return self.auc(self.ratings.score[self.held_out])

    @cached_property
    def one_sided_auc(self) -> float:
        """The best without looking at users or without looking at items: by how good items, or how generous users are."""
        of_users, of_items = self.world.user_bias[self.ratings.user], self.world.item_bias[self.ratings.item]
        return max(self.auc(bias[self.held_out]) for bias in (of_users, of_items))

    def ndcg(self, scores: np.ndarray) -> float:
        """NDCG of scores (users, items) at what users liked of the held-out rows; items that they met in train are left out."""
        shape = (OPTIONS.users, OPTIONS.items)
        met, wanted = np.zeros(shape, bool), np.zeros(shape, bool)
        user, item = self.ratings.user, self.ratings.item
        met[user[self.train], item[self.train]] = True
        liked = self.held_out[self.liked[self.held_out]]
        wanted[user[liked], item[liked]] = True
        asked = wanted.any(axis=1)
        best = np.argsort(-np.where(met, -np.inf, scores), axis=1, kind="stable")[:, :K]
        hits = np.take_along_axis(wanted, best, axis=1)
        return float(ndcg(Hits(hits[asked], wanted.sum(axis=1)[asked]), K).mean())

    @cached_property
    def likes(self) -> np.ndarray:
        """How likely each user is to like each item, in the middle of all years; shape (users, items)."""
        users, items = np.indices((OPTIONS.users, OPTIONS.items))
        score = self.world.score(users.ravel(), items.ravel(), np.zeros(users.size, np.float32))
        # Ratings are rounded to half stars: one is a like from half of a half star above the last that is none.
        return torch.special.ndtr((torch.from_numpy(score) - (LIKED + 0.5) / 2) / NOISE).view(users.shape).numpy()

    @cached_property
    def chances(self) -> np.ndarray:
        """How likely each user is to meet each item at the times of the held-out rows, and to like it; shape (users, items)."""
        found, met = self.ratings, np.zeros((OPTIONS.users, OPTIONS.items))
        times = (found.timestamp[self.held_out] - (END - OPTIONS.years * YEAR)) / (OPTIONS.years * YEAR)
        for user, time in zip(found.user[self.held_out].tolist(), times.tolist(), strict=True):
            met[user] += chances(self.world, user, time)
        return met * self.likes

    @cached_property
    def best_ndcg(self) -> float:
        """What ranking by these chances reaches."""
        return self.ndcg(self.chances)

    @cached_property
    def same_for_all_ndcg(self) -> float:
        """The best ranking that is the same for every user."""
        return self.ndcg(np.broadcast_to(self.chances.sum(axis=0), self.chances.shape))
