"""Trees as tables come to what LightGBM itself comes to, whatever the trees look at."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
import pytest

from recsys_cli.models.lightgbm.forest import MAX_LEAVES, Forest

Matrix = npt.NDArray[np.float32]
CATEGORIES = 9


def some_rows(number: int, *, seed: int) -> Matrix:
    """A category, numbers on a grid so that many are thresholds, numbers of which some are missing, and counts of 0 or 1."""
    rng = np.random.default_rng(seed)
    missing = np.where(rng.random(number) < 0.2, np.nan, rng.normal(size=number))
    grid = rng.integers(-8, 9, (number, 2)) / 8
    return np.column_stack([rng.integers(0, CATEGORIES, number), grid, missing, rng.random((number, 10)) < 0.3]).astype(
        np.float32
    )


def grown(rows: Matrix, **options: Any) -> lightgbm.Booster:
    """Trees for a label that everything has a part in."""
    there = np.nan_to_num(rows)
    label = np.sin(3 * there).sum(axis=1) + there[:, 1] * there[:, 4] + (there[:, 0] % 3 == 1) + np.isnan(rows[:, 3])
    how = {
        "min_data_in_leaf": 5,
        "min_data_per_group": 5,
        "cat_smooth": 1,
        "verbosity": -1,
        "num_threads": 1,
        **options,
    }
    return lightgbm.train(how, lightgbm.Dataset(rows, label, categorical_feature=[0]), num_boost_round=25)


@pytest.mark.parametrize("num_leaves", [2, 24, 31, 32, MAX_LEAVES])
def test_sums_are_those_of_lightgbm(num_leaves: int) -> None:
    booster = grown(some_rows(1_500, seed=1), num_leaves=num_leaves)
    dumped = booster.dump_model()
    assert max(tree["num_leaves"] for tree in dumped["tree_info"]) == num_leaves
    rows = some_rows(600, seed=2)
    rows[:40, 0] = np.arange(40) + CATEGORIES  # categories that train did not have
    rows[40:80, 1:] = np.nan  # missing where train had none missing
    rows[80:90, 1:4] = np.inf
    rows[90:100, 1:4] = -np.inf

    found = Forest(dumped).sums(rows, threads=2)

    np.testing.assert_allclose(found, booster.predict(rows, raw_score=True, num_threads=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("number", [0, 1, 256, 257])
def test_rows_are_summed_up_alone(number: int, threads: int) -> None:
    rows = some_rows(600, seed=3)
    forest = Forest(grown(rows, num_leaves=8).dump_model())
    assert (forest.sums(rows[:number], threads=threads) == forest.sums(rows, threads=1)[:number]).all()


def test_trees_that_look_at_nothing_are_their_leaf() -> None:
    rows = some_rows(50, seed=4)
    booster = lightgbm.train({"verbosity": -1}, lightgbm.Dataset(rows, np.full(50, 0.25)), num_boost_round=2)
    np.testing.assert_allclose(Forest(booster.dump_model()).sums(rows, threads=1), 0.25, rtol=0, atol=1e-12)
