"""Order of the cells of a bench, and the estimate of its remaining time."""

from __future__ import annotations

import pytest

from recsys_cli.config import BenchConfig
from recsys_cli.stages.bench_grid import cells_of, seconds_left


def wanted(*models: str, seeds: tuple[int, ...]) -> BenchConfig:
    return BenchConfig.model_validate({"models": models, "seeds": seeds})


def test_each_model_comes_once_before_any_comes_twice_and_deterministic_ones_only_once() -> None:
    cells = cells_of(wanted("popularity", "mf", "ease", "mlp", seeds=(7, 3)))
    assert [str(cell) for cell in cells] == [
        "popularity", "mf, seed 7", "ease", "mlp, seed 7", "mf, seed 3", "mlp, seed 3",
    ]  # fmt: skip
    assert {cell.seed for cell in cells if cell.deterministic} == {7}


def test_a_model_that_cannot_be_loaded_is_left_for_its_turn() -> None:
    assert [cell.deterministic for cell in cells_of(wanted("no.such.package", "slim", seeds=(1,)))] == [False, True]


def test_another_seed_takes_as_long_as_the_last_and_another_model_as_long_as_one_does_on_the_mean() -> None:
    fast, slow, new, *_ = cells = cells_of(wanted("mf", "sasrec", "mlp", seeds=(1, 2)))
    assert seconds_left(cells, {}) is None
    took = {"mf": [1.0, 3.0], "sasrec": [60.0]}
    assert seconds_left([fast], took) == 2
    assert seconds_left([fast, slow], took) == 62
    assert seconds_left([new], took) == pytest.approx((2 + 60) / 2)
    assert seconds_left([], took) == 0
