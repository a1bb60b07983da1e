"""Who is ranked for and what should be found, on examples small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.held_out import HeldOut, candidate_items, hold_out
from recsys_cli.interactions import Interactions

NUM_ITEMS = 10


def interactions(*rows: tuple[int, int, int]) -> Interactions:
    user, item, label = (np.array(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return Interactions(np.array(user, np.int32), np.array(item, np.int32), np.array(label, np.float32))


# Items 3 and 4 have two train rows each, 5 and 6 one, 7 to 9 none; user 3 met 3 and 4, user 4 met 3, 4, 5 and 6.
TRAIN = interactions((3, 3, 1), (3, 4, 0), (4, 3, 1), (4, 4, 1), (4, 5, 0), (4, 6, 1))


def problem(*rows: tuple[int, int, int], history: Interactions = TRAIN, **config) -> HeldOut:
    candidates = candidate_items(TRAIN, num_items=NUM_ITEMS)
    return hold_out(
        interactions(*rows), history, candidates=candidates, num_items=NUM_ITEMS, config=EvaluateConfig(**config)
    )


def test_candidates_have_a_train_row_and_stand_by_count_and_id() -> None:
    train = interactions((3, 9, 1), (3, 5, 1), (4, 7, 0), (4, 5, 1), (4, 2, 1), (5, 2, 1), (6, 2, 1), (6, 1, 1))

    assert candidate_items(train, num_items=NUM_ITEMS).tolist() == [5, 7, 9]


def test_relevant_are_positive_rows_each_item_once() -> None:
    found = problem((3, 5, 1), (3, 5, 1), (3, 6, 0))

    assert found.user_idx.tolist() == [3]
    assert found.candidates[found.relevant.values].tolist() == [5]
    assert found.num_relevant.tolist() == [1]


def test_relevant_all_takes_negative_rows_too() -> None:
    found = problem((3, 5, 1), (3, 6, 0), relevance="all")

    assert found.candidates[found.relevant.values].tolist() == [5, 6]


def test_seen_items_are_hidden_and_not_expected() -> None:
    found = problem((3, 3, 1), (3, 5, 1))

    assert found.candidates[found.seen.values].tolist() == [3, 4]
    assert found.candidates[found.relevant.values].tolist() == [5]
    assert found.num_relevant.tolist() == [1]


def test_users_with_nothing_to_find_are_left_out_and_counted() -> None:
    found = problem((3, 5, 1), (4, 5, 0), (5, 3, 0), (6, 4, 1))

    assert found.user_idx.tolist() == [3, 6]
    assert (found.num_eligible, found.num_without) == (2, 2)


def test_cold_items_stay_in_the_denominator() -> None:
    # Two rows of items without an id are two items, whatever they are; item 8 has an id and no train row, and is one item.
    found = problem((3, 5, 1), (3, 2, 1), (3, 2, 1), (3, 8, 1), (3, 8, 1), (3, 2, 0))

    assert found.num_relevant.tolist() == [4]
    assert found.num_unreachable == 3
    assert found.candidates[found.relevant.values].tolist() == [5]


def test_user_with_only_cold_items_is_ranked_for_and_cannot_win() -> None:
    found = problem((3, 2, 1))

    assert found.user_idx.tolist() == [3]
    assert found.relevant.values.tolist() == []
    assert found.num_relevant.tolist() == [1]


def test_users_without_an_id_are_not_ranked_for() -> None:
    found = problem((2, 5, 1), (1, 6, 1), (3, 5, 1))

    assert found.user_idx.tolist() == [3]
    assert (found.num_eligible, found.num_without) == (1, 0)


def test_history_may_hold_more_than_train() -> None:
    found = problem((3, 5, 1), (3, 6, 1), history=TRAIN + interactions((3, 5, 1)))

    assert found.candidates[found.relevant.values].tolist() == [6]


def test_sample_is_stable_and_grows_by_adding() -> None:
    rows = [(user, 5, 1) for user in range(10, 210)]

    small, large, other = (
        problem(*rows, max_ranking_users=size, seed=seed) for size, seed in ((20, 0), (40, 0), (20, 1))
    )

    assert len(small.user_idx) == 20
    assert set(small.user_idx) < set(large.user_idx)
    assert set(small.user_idx) != set(other.user_idx)
    assert (np.diff(small.user_idx) > 0).all()
    assert small.num_eligible == 200


@pytest.mark.parametrize("size", [None, 200, 10_000])
def test_large_samples_contain_all_users(size: int | None) -> None:
    found = problem(*[(user, 5, 1) for user in range(10, 210)], max_ranking_users=size)

    assert len(found.user_idx) == found.num_eligible == 200


def test_block_gives_each_user_its_own_places() -> None:
    found = problem((3, 5, 1), (4, 2, 1), (5, 6, 1), (5, 3, 1))

    users, places = found.relevant.block(1, 3)

    assert found.user_idx[1:3].tolist() == [4, 5]
    assert [(u, found.candidates[p]) for u, p in zip(users, places, strict=True)] == [(1, 3), (1, 6)]


def test_no_held_out_rows_give_no_users() -> None:
    found = problem()

    assert (len(found.user_idx), found.num_eligible, found.num_without) == (0, 0, 0)
