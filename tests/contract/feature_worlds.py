"""Worlds in which the next item follows from the category of the last one, or from the hour or the day of the last interaction.

Within the right group each item comes as likely as another. So the best ranking has items of this group alone at its top, and a
ranking is measured by the share of them there, without chance.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.features.schema import FIRST, UNSEEN, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import TrainingContext

USERS, MET = 400, 15
MONDAY = 1_577_664_000
"""2019-12-30, midnight, in seconds."""
HOUR, DAY = 3_600, 86_400
Ints = NDArray[np.int64]


class Schemas:
    """Schemas of worlds with so many items."""

    @staticmethod
    def plain(items: int) -> Schema:
        """Users, items, labels, times."""
        return Schema(columns=(
            _ids("user", Role.USER, USERS), _ids("item", Role.ITEM, items),
            Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
            Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64"),
        ))  # fmt: skip

    @staticmethod
    def of_features(items: int, categories: int) -> Schema:
        """These, and a column of each kind in the table of items."""
        several = _ids("tags", Role.FEATURE, categories).model_copy(update={"table": "item", "ragged": True})
        vector = {"dtype": "float32", "kind": Kind.NUMERIC, "role": Role.FEATURE, "table": "item"}
        return Schema(columns=(
            *Schemas.plain(items).columns,
            _ids("category", Role.FEATURE, categories).model_copy(update={"table": "item"}), several,
            Column(name="price", **vector), Column(name="vector", ragged=True, lengths=(0, 8), **vector),
        ))  # fmt: skip


def _ids(name: str, role: Role, size: int) -> Column:
    return Column(name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=size + FIRST, vocabulary=name)


class CategoryWorld:
    """The category after c is c + 1, around a circle; each user begins anywhere. Most items come a few times, some never.

    Attributes:
        met: Items from 0, shape (users, MET).
        categories: By item; the last COLD have no id.
    """

    ITEMS, CATEGORIES, COLD = 3_200, 8, 160

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        size = self.ITEMS + self.COLD
        self.categories = np.arange(size) % self.CATEGORIES
        first = rng.integers(self.CATEGORIES, size=(USERS, 1))
        wanted = (first + np.arange(MET)) % self.CATEGORIES
        self.met = wanted + self.CATEGORIES * rng.integers(self.ITEMS // self.CATEGORIES, size=(USERS, MET))
        self.next_category = (wanted[:, -1] + 1) % self.CATEGORIES
        self.noise = rng.integers(self.CATEGORIES, size=size)
        self.signs = np.eye(8, dtype=np.float32)[self.categories] * rng.uniform(0.5, 2, (size, 1)).astype(np.float32)
        self.price = rng.standard_normal(size).astype(np.float32)

    @property
    def schema(self) -> Schema:
        return Schemas.of_features(self.ITEMS, self.CATEGORIES)

    def join(self, ids: Mapping[str, Tensor]) -> dict[str, Feature]:
        """Features of ids and of rows of items without one: `tags` has the category and noise, `vector` the category."""
        features: dict[str, Feature] = dict(ids)
        if "item" in ids:
            rows = ids["item"].long()
            features["item"] = rows.where(rows < FIRST + self.ITEMS, UNSEEN)
            number = (rows - FIRST).clamp(min=0)
            features["category"] = category = torch.from_numpy(self.categories)[number] + FIRST
            tags = torch.stack([torch.from_numpy(self.noise)[number] + FIRST, category], dim=1)
            features["tags"] = Ragged(tags.flatten(), torch.arange(len(rows) + 1) * 2)
            features["price"] = torch.from_numpy(self.price)[number]
            features["vector"] = Ragged(torch.from_numpy(self.signs)[number].flatten(), torch.arange(len(rows) + 1) * 8)
        return features

    @property
    def context(self) -> TrainingContext:
        rows = _rows(self.met, np.broadcast_to(MONDAY + np.arange(MET) * DAY, self.met.shape))
        return TrainingContext(lambda: rows, self.join)

    def share(self, scores: NDArray[np.floating], items: Ints) -> float:
        """Return the share of the right category among the ten best of some items; scores (users, items)."""
        best = items[np.argsort(-scores, axis=1, kind="stable")[:, :10]]
        return float((self.categories[best] == self.next_category[:, None]).mean())


class TimeWorld:
    """The group of the next item is the quarter of the day, or the day of the week, of the last interaction."""

    ITEMS = 84

    def __init__(self, period: str) -> None:
        rng = np.random.default_rng(0)
        self.groups, group = {"hour_of_day": (4, _quarter), "day_of_week": (7, _weekday)}[period]
        times = MONDAY + rng.integers(1, 30, (USERS, MET)).cumsum(axis=1) * DAY + rng.integers(DAY, size=(USERS, MET))
        choice = rng.integers(self.ITEMS // self.groups, size=(USERS, MET)) * self.groups
        before = np.concatenate([rng.integers(self.groups, size=(USERS, 1)), group(times[:, :-1])], axis=1)
        self.met, self.times = choice + before, times
        self.next_group = group(times[:, -1])

    @property
    def schema(self) -> Schema:
        return Schemas.plain(self.ITEMS)

    def context(self, *, shift: int = 0, ticks: int = 1) -> TrainingContext:
        """All rows, so many seconds later, in units of a tick."""
        rows = _rows(self.met, (self.times + shift) * ticks)
        return TrainingContext(lambda: rows, dict)

    def share(self, scores: NDArray[np.floating]) -> float:
        """Return the share of the right group among the ten best items; scores (users, items)."""
        best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        return float((best % self.groups == self.next_group[:, None]).mean())


def _quarter(times: Ints) -> Ints:
    return times % DAY // (6 * HOUR)


def _weekday(times: Ints) -> Ints:
    return (times - MONDAY) // DAY % 7


def _rows(met: Ints, times: Ints) -> Interactions:
    users = np.repeat(np.arange(USERS) + FIRST, MET).astype(np.int32)
    items = (met + FIRST).ravel().astype(np.int32)
    return Interactions(users, items, np.ones(len(users), np.float32), times=times.ravel())


def epochs(number: int, *, users: int = USERS) -> list[Batch]:
    """Return batches of all users, in another order each time."""
    rng = np.random.default_rng(1)
    orders = [torch.from_numpy(rng.permutation(users) + FIRST).int() for _ in range(number)]
    return [Batch({"user": part}, {"label": torch.ones(len(part))}) for order in orders for part in order.split(32)]
