"""Histories with recent interactions."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.serving.histories import Histories, History
from recsys_cli.serving.query import RecentInteraction
from recsys_cli.serving.recent import extended


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


def test_unknown_items_change_nothing() -> None:
    stored: History = histories(None).of_user(3)
    assert extended(histories(None), stored, [RecentInteraction("?")], np.array([-1])) is stored
