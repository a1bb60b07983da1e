"""The shuffle is a bijection and looks random; the partition gives each row to one rank, with equal numbers of steps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.features.hashing import mix
from recsys_cli.loader.order import BatchPartition, Permutation, pieces

GOLDEN = [660033, 511174, 154223, 763557, 654289]
SIZES = [*range(1, 260), 1_000, 4_095, 4_096, 4_097, 65_537, 99_991]


@pytest.mark.parametrize("key", [0, 1, mix(7, 3)])
def test_permutation_is_a_bijection(key: int) -> None:
    for size in SIZES:
        assert np.array_equal(np.sort(Permutation(size, key)(0, size)), np.arange(size)), size
    assert Permutation(0, key)(0, 0).size == 0


def test_permutation_stretch_is_the_stretch_of_the_whole() -> None:
    order = Permutation(10_007, 5)
    whole = order(0, 10_007)
    for start, stop in [(0, 1), (1, 4_000), (9_999, 10_007), (17, 17)]:
        assert np.array_equal(order(start, stop), whole[start:stop])


def test_permutation_never_changes_with_a_release() -> None:
    assert Permutation(1_000_003, mix(42, 0))(0, 5).tolist() == GOLDEN


def test_permutation_reaches_beyond_32_bits() -> None:
    size = 2**33 + 12_345
    values = Permutation(size, 1)(2**32, 2**32 + 10_000)
    assert values.dtype == np.int64
    assert len(np.unique(values)) == 10_000
    assert 0 <= values.min() < size // 100
    assert size - size // 100 < values.max() < size


@pytest.mark.parametrize("size", [16, 33])
def test_permutation_puts_every_number_everywhere_equally_often(size: int) -> None:
    trials = 60 * size
    counts = np.zeros((size, size))
    for trial in range(trials):
        counts[np.arange(size), Permutation(size, mix(trial, 9))(0, size)] += 1
    expected = trials / size
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = (size - 1) ** 2
    assert abs(chi_square - freedom) < 6 * np.sqrt(2 * freedom)


def test_permutation_neighbours_are_unrelated() -> None:
    size = 200_003
    values = Permutation(size, mix(1, 2))(0, size).astype(np.float64)
    for lag in (1, 2, 64, 447, 448, 512, 4_096):
        assert abs(np.corrcoef(values[:-lag], values[lag:])[0, 1]) < 5 / np.sqrt(size), lag
    steps = (values[1:] - values[:-1]) % size
    counts = np.histogram(steps, bins=100)[0]
    assert ((counts - size / 100) ** 2 / (size / 100)).sum() < 99 + 6 * np.sqrt(2 * 99)


def test_permutation_batches_hold_even_shares_of_sorted_data() -> None:
    size, batch = 500_009, 4_096
    order = Permutation(size, mix(3, 3))
    shares = np.array(
        [np.histogram(order(at, at + batch), bins=16, range=(0, size))[0] for at in range(0, 400_000, batch)]
    )
    expected = batch / 16
    chi_squares = ((shares - expected) ** 2 / expected).sum(axis=1)
    assert abs(chi_squares.mean() - 15) < 6 * np.sqrt(30 / len(chi_squares))
    assert chi_squares.max() < 60


def test_permutations_of_two_epochs_are_unrelated() -> None:
    size = 100_003
    one, two = (Permutation(size, mix(0, epoch))(0, size).astype(np.float64) for epoch in (0, 1))
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(size)
    assert (one == two).sum() < 10


@given(num_rows=st.integers(0, 400), batch_size=st.integers(1, 40), world_size=st.integers(1, 7))
def test_deal_gives_each_row_to_one_rank(num_rows: int, batch_size: int, world_size: int) -> None:
    deal = BatchPartition(num_rows, batch_size, world_size)
    steps = [[deal.spans(step, rank)[0] for rank in range(world_size)] for step in range(deal.num_steps)]
    assert [row for spans in steps for span in spans for row in range(*span)] == list(range(num_rows))
    for spans in steps:
        sizes = [stop - start for start, stop in spans]
        assert max(sizes) - min(sizes) <= 1
        assert sum(sizes) <= batch_size + 1


@given(num_rows=st.integers(0, 400), batch_size=st.integers(1, 40), world_size=st.integers(1, 7))
def test_deal_step_has_the_same_rows_for_any_number_of_ranks(num_rows: int, batch_size: int, world_size: int) -> None:
    many, one = BatchPartition(num_rows, batch_size, world_size), BatchPartition(num_rows, batch_size)
    assert many.num_steps == one.num_steps
    for step in range(one.num_steps):
        first, last = many.spans(step)[0], many.spans(step, world_size - 1)[0]
        assert one.spans(step) == [one.step(step)] == [(first[0], last[1])]


@given(
    num_rows=st.integers(0, 200), batch_size=st.integers(1, 40), world_size=st.integers(1, 5), parts=st.integers(1, 6)
)
def test_a_part_of_a_step_is_the_same_rows_for_any_number_of_ranks(
    num_rows: int, batch_size: int, world_size: int, parts: int
) -> None:
    """The pieces of all ranks cover each part of a step."""
    deal = BatchPartition(num_rows, batch_size, world_size, parts)
    for step in range(deal.num_steps):
        start, stop = deal.step(step)
        found: list[list[int]] = [[] for _ in range(parts)]
        for rank in range(world_size):
            rows = iter([row for span in deal.spans(step, rank) for row in range(*span)])
            sizes = pieces(stop - start, parts=parts, rank=rank, world_size=world_size)
            for part, (first, last) in enumerate(sizes):
                found[part] += [next(rows) for _ in range(first, last)]
            assert not list(rows)
        bounds = [start + (stop - start) * part // parts for part in range(parts + 1)]
        assert found == [list(range(*span)) for span in pairwise(bounds)]


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "world_size", "steps", "last"),
    [
        (10, 4, 1, 3, [2]),
        (9, 4, 1, 2, [5]),
        (1, 4, 1, 1, [1]),
        (0, 4, 1, 0, []),
        (3, 1, 1, 3, [1]),
        (17, 8, 2, 2, [4, 5]),
        (21, 8, 2, 3, [2, 3]),
        (23, 7, 4, 4, [0, 1, 0, 1]),
        (2, 12, 3, 1, [0, 1, 1]),
        (3, 1, 2, 3, [0, 1]),
    ],
)
def test_deal_last_step(num_rows: int, batch_size: int, world_size: int, steps: int, last: list[int]) -> None:
    deal = BatchPartition(num_rows, batch_size, world_size)
    assert deal.num_steps == steps
    spans = [deal.spans(steps - 1, rank)[0] for rank in range(world_size)] if steps else []
    assert [stop - start for start, stop in spans] == last
