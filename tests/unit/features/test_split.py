"""Splits of small data, checked by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from recsys_cli.features.order import tie_keys
from recsys_cli.features.split import (
    TEST,
    TRAIN,
    VALID,
    AnySplit,
    LeaveLastOut,
    RandomSplit,
    SessionSplit,
    TemporalSplit,
    UserSplit,
)


def assigned(split, *, batches: int = 1, **columns: np.ndarray) -> np.ndarray:
    """Return the codes of all rows, passed in several batches."""
    parts = {name: np.array_split(values, batches) for name, values in columns.items()}

    def rows() -> Iterator[dict[str, np.ndarray]]:
        return ({name: parts[name][batch] for name in parts} for batch in range(batches))

    return np.concatenate(list(split.codes(rows)))


TIMES = st.one_of(st.integers(0, 4), st.sampled_from([-(2**63), 2**63 - 1, 0, 1, -1, 70_000, 10**9]))


def test_random_split_has_its_shares() -> None:
    codes = RandomSplit(valid=0.2, test=0.1).assign_rows(np.arange(200_000, dtype=np.uint64))
    assert np.bincount(codes) / 200_000 == pytest.approx([0.7, 0.2, 0.1], abs=0.005)


def test_random_split_depends_on_the_seed_and_not_on_chunks() -> None:
    split = RandomSplit(valid=0.3, seed=5)
    rows = np.arange(10_000, dtype=np.uint64)
    whole = split.assign_rows(rows)
    parts = np.concatenate([split.assign_rows(part) for part in np.array_split(rows, 7)])
    assert np.array_equal(whole, parts)
    assert (RandomSplit(valid=0.3, seed=6).assign_rows(rows) != whole).any()


def test_random_split_never_changes() -> None:
    codes = RandomSplit(valid=0.25, test=0.25, seed=42).assign_rows(np.arange(16, dtype=np.uint64))
    assert codes.tolist() == [2, 0, 2, 0, 0, 0, 2, 0, 2, 0, 1, 0, 1, 0, 1, 0]


@given(st.lists(st.tuples(TIMES, st.integers(-1, 4)), min_size=1, max_size=40), st.integers(1, 7))
def test_temporal_split_divides_no_impression_of_one_time(rows: list[tuple[int, int]], batches: int) -> None:
    times, impressions = (np.array(column) for column in zip(*rows, strict=True))
    split = TemporalSplit(valid=0.3, test=0.3)
    by_row = assigned(split, batches=batches, timestamp=times)
    codes = assigned(split, batches=batches, timestamp=times, impression=impressions)
    first = {pair: by_row[row] for row, pair in reversed([*enumerate(rows)])}
    assert codes.tolist() == [by_row[row] if pair[1] < 0 else first[pair] for row, pair in enumerate(rows)]


def test_leave_last_out_takes_the_last_two_by_time_then_row() -> None:
    users = np.array([7, 7, 7, 9, 9, 7, 3, 3, 3])
    times = np.array([1, 9, 9, 5, 6, 2, 4, 4, 4])
    codes = assigned(LeaveLastOut(), user=users, timestamp=times)
    # User 7: rows 0 5 1 2 in order; user 9 has only two; user 3 has three at one time.
    assert codes.tolist() == [TRAIN, VALID, TEST, TRAIN, TRAIN, TRAIN, TRAIN, VALID, TEST]


def test_user_split_keeps_users_whole() -> None:
    users = np.arange(5_000) % 500
    codes = assigned(UserSplit(valid=0.2, test=0.2), user=users)
    assert all(len(set(codes[users == user])) == 1 for user in range(500))
    assert np.bincount(codes) / 5_000 == pytest.approx([0.6, 0.2, 0.2], abs=0.06)


@given(
    st.lists(TIMES, min_size=1, max_size=40), st.integers(1, 7), st.sampled_from([(0.2, 0.2), (0.5, 0.0), (0.0, 0.3)])
)
def test_temporal_split_is_a_cut_of_the_sorted_rows(
    times: list[int], batches: int, shares: tuple[float, float]
) -> None:
    split = TemporalSplit(valid=shares[0], test=shares[1])
    codes = assigned(split, batches=batches, timestamp=np.array(times))
    in_order = codes[np.lexsort((np.arange(len(times)), np.array(times)))]
    assert np.all(np.diff(in_order.astype(int)) >= 0)
    wanted = [int(round(len(times) * (1 - sum(shares)), 6)), int(round(len(times) * (1 - shares[1]), 6))]
    assert [int((in_order < VALID).sum()), int((in_order < TEST).sum())] == wanted


@given(st.lists(st.tuples(st.integers(0, 4), TIMES), min_size=1, max_size=40), st.integers(1, 7))
def test_leave_last_out_equals_a_full_sort(rows: list[tuple[int, int]], batches: int) -> None:
    users, times = (np.array(column) for column in zip(*rows, strict=True))
    codes = assigned(LeaveLastOut(), batches=batches, user=users, timestamp=times)
    expected = np.full(len(rows), TRAIN)
    for user in set(users):
        mine = sorted(np.flatnonzero(users == user), key=lambda row: (times[row], row))
        if len(mine) >= 3:
            expected[mine[-1]], expected[mine[-2]] = TEST, VALID
    assert codes.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("split", "leakage"),
    [(TemporalSplit(), "None"), (LeaveLastOut(), "later"), (UserSplit(), "cold"), (SessionSplit(), "")],
    ids=lambda one: getattr(one, "method", ""),
)
def test_per_user_splits_warn_of_leakage_and_no_rows_are_split(split, leakage: str) -> None:
    nothing = np.array([], dtype=np.int64)
    assert len(assigned(split, user=nothing, timestamp=nothing)) == 0
    assert leakage in str(split.leakage)


def test_a_split_without_train_is_refused() -> None:
    with pytest.raises(ValidationError, match="leaves nothing to train on"):
        TypeAdapter(AnySplit).validate_python({"method": "random", "valid": 0.6, "test": 0.4})


@given(st.lists(st.tuples(st.integers(0, 6), TIMES), min_size=1, max_size=40), st.integers(1, 7))
def test_session_split_orders_whole_sessions_by_their_end(rows: list[tuple[int, int]], batches: int) -> None:
    numbers = {session: number for number, session in enumerate(dict.fromkeys(one for one, _ in rows))}
    sessions, times = np.array([numbers[one] for one, _ in rows]), np.array([time for _, time in rows])
    codes = assigned(SessionSplit(valid=0.3, test=0.3), batches=batches, user=sessions, timestamp=times)
    ends = [times[sessions == session].max() for session in range(len(numbers))]
    in_order = sorted(range(len(numbers)), key=lambda session: (ends[session], session))
    of = [codes[sessions == session] for session in in_order]
    assert all(len(set(one)) == 1 for one in of)
    assert np.all(np.diff([int(one[0]) for one in of]) >= 0)
    assert sum(one[0] == TEST for one in of) == pytest.approx(0.3 * len(of), abs=0.99)


KEYED = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, 1, 2, -(2**63), 2**63 - 1])), min_size=1, max_size=40)


@given(KEYED, st.integers(1, 7), st.integers(0, 3))
def test_leave_last_out_with_a_tie_seed_equals_a_full_sort_by_key(
    rows: list[tuple[int, int]], batches: int, seed: int
) -> None:
    users, times = (np.array(column) for column in zip(*rows, strict=True))
    numbers = 3 * np.arange(len(rows))  # an op drops two of three rows
    keys = tie_keys(numbers, seed)
    codes = assigned(LeaveLastOut(tie_seed=seed), batches=batches, user=users, timestamp=times, number=numbers)
    expected = np.full(len(rows), TRAIN)
    for user in set(users):
        mine = sorted(np.flatnonzero(users == user), key=lambda row: (times[row], keys[row]))
        if len(mine) >= 3:
            expected[mine[-1]], expected[mine[-2]] = TEST, VALID
    assert codes.tolist() == expected.tolist()


@given(KEYED, st.integers(1, 7), st.integers(0, 3))
def test_temporal_split_with_a_tie_seed_cuts_the_rows_by_time_and_key(
    rows: list[tuple[int, int]], batches: int, seed: int
) -> None:
    times, numbers = np.array([time for _, time in rows]), np.arange(len(rows))
    codes = assigned(
        TemporalSplit(valid=0.3, test=0.3, tie_seed=seed), batches=batches, timestamp=times, number=numbers
    )
    in_order = codes[np.lexsort((tie_keys(numbers, seed), times))]
    assert np.all(np.diff(in_order.astype(int)) >= 0)
    assert int((in_order == TEST).sum()) == len(rows) - int(round(len(rows) * 0.7, 6))


@given(KEYED, st.integers(1, 7))
def test_temporal_split_with_a_tie_seed_divides_no_impression_of_one_time(
    rows: list[tuple[int, int]], batches: int
) -> None:
    shown, times = (np.array(column) for column in zip(*rows, strict=True))
    codes = assigned(
        TemporalSplit(valid=0.3, test=0.3, tie_seed=1),
        batches=batches,
        timestamp=times,
        impression=shown - 1,
        number=np.arange(len(rows)),
    )
    for pair in {row for row in rows if row[0] > 0}:
        assert len({code for row, code in zip(rows, codes.tolist(), strict=True) if row == pair}) == 1


def test_a_tie_seed_puts_each_row_last_equally_often() -> None:
    users = np.repeat(np.arange(3_000), 5)
    columns = {"user": users, "timestamp": np.zeros_like(users), "number": np.arange(len(users))}
    codes = assigned(LeaveLastOut(tie_seed=1), batches=3, **columns)
    last = np.bincount(np.flatnonzero(codes == TEST) % 5, minlength=5)
    assert last.sum() == 3_000
    assert np.abs(last - 600).max() < 4 * np.sqrt(600 * 0.8)
    assert (assigned(LeaveLastOut(tie_seed=2), **columns) != codes).any()
