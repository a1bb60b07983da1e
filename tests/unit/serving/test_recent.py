"""Histories with recent interactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recsys_cli.interactions import Interactions
from recsys_cli.serving.histories import Histories, History, extended
from recsys_cli.serving.query import Query, RecentInteraction
from recsys_cli.serving.recommender import Recommender
from tests.served_runs import history_of


def histories(mean: float | None) -> Histories:
    """One user with the items 3, 4, 5."""
    items, labels = np.array([3, 4, 5], np.int32), np.array([1, 0, 1], np.float32)
    return Histories(np.array([0, 0, 0, 0, 3]), items, labels, np.array([10, 20, 30]), mean)


@pytest.mark.parametrize(("mean", "labels"), [(None, [1, 1, 0, 1, 1]), (3.0, [1, 1, -1, 2, 6])])
def test_recent_interactions_follow_and_replace_stored_ones(mean: float | None, labels: list[float]) -> None:
    recent = [RecentInteraction("b", -1), RecentInteraction("?"), RecentInteraction("d", 2), RecentInteraction("e")]
    all_users = histories(mean)
    found = extended(all_users, all_users.of_user(3), recent, np.array([4, -1, 8, 9]))
    assert found.items.tolist() == [3, 5, 4, 8, 9]
    assert found.labels.tolist() == labels
    assert found.times is not None
    assert found.times.tolist() == [10, 30, 31, 32, 33]


def test_recent_interactions_with_a_time_are_in_its_order() -> None:
    recent = [RecentInteraction("a", time=0.5), RecentInteraction("b", time=2.0), RecentInteraction("c", time=1e11),
              RecentInteraction("d")]  # fmt: skip
    all_users = histories(None)
    found = extended(all_users, all_users.of_user(3), recent, np.array([6, 7, 8, 9]), ticks=10)
    assert found.items.tolist() == [6, 3, 4, 7, 5, 8, 9]
    assert found.times is not None
    assert found.times.tolist() == [5, 10, 20, 20, 30, 10**12, 10**12 + 4]


def test_stored_rows_keep_their_weights_and_recent_ones_have_weight_1(tmp_path: Path) -> None:
    items, weights = np.array([3, 4, 5], np.int32), np.array([2, 0, 0.5], np.float32)
    rows = Interactions(items, items, np.ones(3, np.float32), times=np.arange(3), weights=weights)
    Histories.of(rows, num_users=6).write(tmp_path / "histories")
    stored = Histories.read(tmp_path / "histories", mean=None, num_users=6, num_items=9)
    for users in (None, np.array([3, 5])):
        found = stored.interactions(users)
        assert dict(zip(found.item_idx.tolist(), found.weights, strict=True)) == (
            {3: 2, 4: 0, 5: 0.5} if users is None else {3: 2, 5: 0.5}
        )
    recent = extended(stored, stored.of_user(5), [RecentInteraction("b")], np.array([7]))
    assert stored.together([stored.of_user(3), recent]).weights.tolist() == [2, 0.5, 1]


def test_a_sequence_model_reads_recent_interactions_by_time(recommenders: Callable[[str], Recommender]) -> None:
    model = recommenders("sasrec")
    stored = history_of(model, 3)
    item = next(one for one in range(1, 41) if one not in stored)
    early, late, unknown = (
        [(one.item.id, one.score) for one in model.recommend([Query(user=3, recent=[recent])])[0].items]
        for recent in (RecentInteraction(item, time=0.0), RecentInteraction(item, time=1e6), RecentInteraction(item))
    )
    assert late == unknown
    assert late != early


def test_unknown_items_change_nothing() -> None:
    stored: History = histories(None).of_user(3)
    assert extended(histories(None), stored, [RecentInteraction("?")], np.array([-1])) is stored
