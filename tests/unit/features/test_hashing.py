"""The hash is fixed for ever: a change here would silently change every split and every shuffle."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.features.hashing import below, hash_counters, mix, permutation


def test_hash_counters_is_splitmix64() -> None:
    # The published sequence of the reference implementation started at 1234567.
    hashes = hash_counters(np.arange(1, 4, dtype=np.uint64), 1234567)

    assert hashes.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_mix_tells_streams_apart() -> None:
    keys = {mix(seed, stream, shard) for seed in range(10) for stream in range(3) for shard in range(10)}

    assert len(keys) == 300


def test_permutation_never_changes() -> None:
    assert permutation(10, mix(42, 3, 0)).tolist() == [8, 1, 6, 9, 7, 3, 0, 5, 2, 4]


@pytest.mark.parametrize("size", [0, 1, 2, 1000, 70_001])
def test_permutation_has_each_number_once(size: int) -> None:
    assert np.array_equal(np.sort(permutation(size, 7)), np.arange(size))


def test_permutation_mixes() -> None:
    order = permutation(100_000, 1)

    assert abs(np.corrcoef(order, np.arange(100_000))[0, 1]) < 0.02
    assert abs(order[:10_000].mean() / 50_000 - 1) < 0.05


def test_below_is_even() -> None:
    counts = np.bincount(below(hash_counters(np.arange(130_000, dtype=np.uint64), 3), 13).astype(int), minlength=13)

    assert len(counts) == 13
    assert np.abs(counts / 10_000 - 1).max() < 0.05
