"""The rows of single users: the newest first, and what a ranking for them should find."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from recsys_cli.evaluation.user_history import find_ground_truth, newest_first, rows_of
from recsys_cli.features.schema import FIRST, UNSEEN, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.workspace import PreparedData

MakePrepared = Callable[..., PreparedData]


def rows(times: list[int] | None, *items: int, labels: list[float] | None = None) -> Interactions:
    ids = np.array(items, np.int32)
    when = None if times is None else np.array(times)
    liked = np.array([1] * len(ids) if labels is None else labels, np.float32)
    return Interactions(np.full(len(ids), 3, np.int32), ids, liked, None, when)


def test_rows_of_a_user_and_of_an_item_are_all_of_them(make_prepared: MakePrepared) -> None:
    data = make_prepared()
    for role, ids in ((Role.USER, range(FIRST, FIRST + 40)), (Role.ITEM, range(FIRST, FIRST + 30))):
        parts = [rows_of(data, role, each) for each in ids]
        assert all(list(part) == ["train", "valid"] for part in parts)
        assert sum(len(part["train"]) for part in parts) == data.rows("train")
        assert sum(part["valid"].positive.sum() for part in parts) == read_interactions(data, "valid").positive.sum()
    one = rows_of(data, Role.USER, 7)["train"]
    assert set(one.user_idx) == {7}
    assert (one.labels == ((one.user_idx + one.item_idx) % 2 == 0)).all()


def test_newest_come_first_over_splits_and_the_data_order_stands_without_times() -> None:
    found = {"train": rows([5, 9], 4, 5), "valid": rows([7], 6), "test": rows([99], 7)}
    assert [(one.item_idx, one.split) for one in newest_first(found, ("train", "valid"))] == [
        (5, "train"), (6, "valid"), (4, "train"),
    ]  # fmt: skip
    assert [one.item_idx for one in newest_first({"train": rows(None, 9, 4, 6)}, ("train", "valid"))] == [9, 4, 6]


@pytest.mark.parametrize(
    ("relevant", "items"),
    # 0.7 is no float32: as one it is a little less, and the least label has to be of the same kind
    [("positive", [4, 6, 8, UNSEEN]), ("all", [4, 5, 6, 8, UNSEEN]), (0.7, [4, 6, 8, UNSEEN]), (0.8, [4, 6, UNSEEN])],
)
def test_ground_truth_has_each_relevant_unseen_item_once(relevant: str | float, items: list[int]) -> None:
    test = rows(None, 4, 5, 6, 4, 7, UNSEEN, 8, labels=[1, 0, 1, 1, 1, 1, 0.7])
    train = rows(None, 7, UNSEEN)  # another item without an id

    found = find_ground_truth(
        {"train": train, "test": test}, ("test",), newest_first({"train": train}, ("train",)), relevant=relevant
    )

    assert sorted(one.item_idx for one in found) == sorted(items)
    assert not find_ground_truth({"train": train}, (), [], relevant=relevant)
