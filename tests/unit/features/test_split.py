"""Splits: who goes where, on data small enough to say so by hand."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from recsys_cli.features.split import (
    TEST,
    TRAIN,
    VALID,
    AnySplit,
    LeaveLastOut,
    RandomSplit,
    TemporalSplit,
    UserSplit,
    assign,
)


def test_random_split_has_its_shares() -> None:
    codes = assign(RandomSplit(valid=0.2, test=0.1), 200_000, {})

    assert np.bincount(codes) / 200_000 == pytest.approx([0.7, 0.2, 0.1], abs=0.005)


def test_random_split_does_not_depend_on_chunks() -> None:
    split = RandomSplit(valid=0.3, seed=5)
    rows = np.arange(10_000, dtype=np.uint64)

    whole = split.assign_rows(rows)
    parts = np.concatenate([split.assign_rows(part) for part in np.array_split(rows, 7)])

    assert np.array_equal(whole, parts)


def test_random_split_never_changes() -> None:
    codes = assign(RandomSplit(valid=0.25, test=0.25, seed=42), 16, {})

    assert codes.tolist() == [2, 0, 2, 0, 0, 0, 2, 0, 2, 0, 1, 0, 1, 0, 1, 0]


def test_random_split_seed_is_another_split() -> None:
    assert (assign(RandomSplit(seed=1), 1000, {}) != assign(RandomSplit(seed=2), 1000, {})).any()


def test_temporal_split_orders_ties_by_row() -> None:
    times = np.array([5, 1, 5, 5, 2, 5, 3, 5, 4, 5])

    codes = assign(TemporalSplit(valid=0.2, test=0.2), 10, {"timestamp": times})

    # By (time, row): 1 4 6 8 0 2 | 3 5 | 7 9
    assert codes.tolist() == [TRAIN, TRAIN, TRAIN, VALID, TRAIN, VALID, TRAIN, TEST, TRAIN, TEST]


def test_leave_last_out_takes_the_last_two_by_time_then_row() -> None:
    users = np.array([7, 7, 7, 9, 9, 7, 3, 3, 3])
    times = np.array([1, 9, 9, 5, 6, 2, 4, 4, 4])

    codes = assign(LeaveLastOut(), 9, {"user": users, "timestamp": times})

    # User 7: rows 0 5 1 2 in order; user 9 has only two; user 3 has three at one time.
    assert codes.tolist() == [TRAIN, VALID, TEST, TRAIN, TRAIN, TRAIN, TRAIN, VALID, TEST]


def test_user_split_keeps_users_whole() -> None:
    users = np.arange(5_000) % 500

    codes = assign(UserSplit(valid=0.2, test=0.2), 5_000, {"user": users})

    assert all(len(set(codes[users == user])) == 1 for user in range(500))
    assert np.bincount(codes) / 5_000 == pytest.approx([0.6, 0.2, 0.2], abs=0.06)


@pytest.mark.parametrize("split", [RandomSplit(), TemporalSplit(), LeaveLastOut(), UserSplit()], ids=lambda s: s.method)
def test_split_of_no_rows_is_empty(split) -> None:
    nothing = np.array([], dtype=np.int64)

    assert len(assign(split, 0, {"user": nothing, "timestamp": nothing})) == 0


def test_per_user_splits_say_that_they_leak() -> None:
    assert "later" in str(LeaveLastOut().leakage)
    assert "cold" in str(UserSplit().leakage)
    assert TemporalSplit().leakage is None


def test_split_that_leaves_no_train_is_refused() -> None:
    with pytest.raises(ValidationError, match="leaves nothing to train on"):
        TypeAdapter(AnySplit).validate_python({"method": "random", "valid": 0.6, "test": 0.4})
