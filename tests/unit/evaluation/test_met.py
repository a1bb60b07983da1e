"""The rows of single users: the newest first, and what a ranking for them should find."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from recsys_cli.evaluation.met import Met, newest_first, num_positive, rows_of, to_find
from recsys_cli.features.schema import FIRST, UNSEEN, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.workspace import PreparedData

MakePrepared = Callable[..., PreparedData]


def met(item_idx: int, label: float = 1, time: int | None = 0, split: str = "test") -> Met:
    return Met(item_idx, label, label > 0.5, time, split)


def test_rows_of_a_user_and_of_an_item_are_all_of_them(make_prepared: MakePrepared) -> None:
    data = make_prepared()
    for role, ids in ((Role.USER, range(FIRST, FIRST + 40)), (Role.ITEM, range(FIRST, FIRST + 30))):
        parts = [rows_of(data, role, each) for each in ids]
        assert all(list(part) == ["train", "valid"] for part in parts)
        assert sum(len(part["train"]) for part in parts) == data.rows("train")
        assert sum(num_positive(part["valid"]) for part in parts) == num_positive(read_interactions(data, "valid"))
    one = rows_of(data, Role.USER, 7)["train"]
    assert set(one.user_idx) == {7}
    assert (one.labels == ((one.user_idx + one.item_idx) % 2 == 0)).all()


def test_newest_come_first_over_splits_and_the_data_order_stands_without_times() -> None:
    def rows(times: list[int] | None, *items: int) -> Interactions:
        ids = np.array(items, np.int32)
        when = None if times is None else np.array(times)
        return Interactions(np.full(len(ids), 3, np.int32), ids, np.ones(len(ids), np.float32), None, when)

    found = {"train": rows([5, 9], 4, 5), "valid": rows([7], 6), "test": rows([99], 7)}
    assert [(one.item_idx, one.split) for one in newest_first(found, ("train", "valid"))] == [
        (5, "train"), (6, "valid"), (4, "train"),
    ]  # fmt: skip
    assert [one.item_idx for one in newest_first({"train": rows(None, 9, 4, 6)}, ("train", "valid"))] == [9, 4, 6]


@pytest.mark.parametrize(("relevant", "items"), [("positive", [4, 6, UNSEEN]), ("all", [4, 5, 6, UNSEEN])])
def test_to_be_found_is_each_relevant_item_once_that_was_not_met_before(relevant: str, items: list[int]) -> None:
    held_out = [met(4), met(5, label=0), met(6), met(4), met(7), met(UNSEEN)]
    before = [met(7), met(UNSEEN)]  # another item without an id

    found = to_find(held_out, before, relevant=relevant)

    assert sorted(one.item_idx for one in found) == sorted(items)
