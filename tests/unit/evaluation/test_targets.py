"""One target of each user after the border of a split by time, against a slow twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import recsys_cli as recsys
from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.targets import choose_targets
from recsys_cli.interactions import Interactions

HASHES = np.random.default_rng(5).integers(0, 2**63, 40).astype(np.uint64)


def rows(size: int) -> Interactions:
    """Interactions of 30 users with equal times, in random order."""
    rng = np.random.default_rng(size)
    users, items = rng.integers(3, 33, size).astype(np.int32), rng.integers(3, 99, size).astype(np.int32)
    labels = (rng.random(size) < 0.6).astype(np.float32)
    return Interactions(users, items, labels, None, rng.integers(0, 9, size), None, rng.permutation(size))


def triples(found: Interactions) -> list[tuple[int, int, int]]:
    assert found.row_numbers is not None
    return sorted(zip(found.user_idx.tolist(), found.item_idx.tolist(), found.row_numbers.tolist(), strict=True))


@pytest.mark.parametrize("how", ["first", "last", "random"])
@pytest.mark.parametrize("size", [0, 1, 400])
def test_target_is_one_relevant_row_after_all_earlier_ones(how, size) -> None:
    given = rows(size)
    before, targets = choose_targets(given, given.positive, how, users=HASHES, seed=1)

    in_time = sorted(range(size), key=lambda row: (given.times[row], given.row_numbers[row]))
    expected: dict[int, tuple[list[int], list[int]]] = {}
    for user in set(given.user_idx.tolist()):
        own = [row for row in in_time if given.user_idx[row] == user]
        if relevant := [row for row in own if given.labels[row] > 0]:
            expected[user] = (own, relevant)
    assert sorted(targets.user_idx.tolist()) == sorted(expected)
    at = {int(user): int(number) for user, number in zip(targets.user_idx, targets.row_numbers, strict=True)}
    earlier = []
    for user, (own, relevant) in expected.items():
        numbers = [int(given.row_numbers[row]) for row in relevant]
        assert at[user] in {"first": numbers[:1], "last": numbers[-1:], "random": numbers}[how]
        place = [int(given.row_numbers[row]) for row in own].index(at[user])
        earlier += [(user, int(given.item_idx[row]), int(given.row_numbers[row])) for row in own[:place]]
    assert triples(before) == sorted(earlier)


def test_random_targets_follow_the_seed_and_the_raw_user() -> None:
    given = rows(400)
    once, again, other = (
        triples(choose_targets(given, given.positive, "random", users=HASHES, seed=seed)[1]) for seed in (1, 1, 2)
    )
    assert once == again != other
    places = [triples(choose_targets(given, given.positive, how, users=HASHES, seed=1)[1]) for how in ("first", "last")]
    assert once not in places


def test_data_without_times_has_no_targets(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [number % 9 for number in range(90)], "item": [number // 9 for number in range(90)]})
    workspace = recsys.Workspace(str(tmp_path))
    config = recsys.config_from_frame(frame, workspace, user="user", item="item", model="ease")
    data = recsys.etl(config, workspace, progress=False)
    SplitByUser.read(data, "test", EvaluateConfig())
    with pytest.raises(ConfigError, match=r"evaluate\.targets=last needs times"):
        SplitByUser.read(data, "test", EvaluateConfig(targets="last"))


@pytest.mark.parametrize("targets", [1, "each", "latest"])
def test_targets_of_fold_in_need_cold_start_users(tmp_path: Path, targets: int | str) -> None:
    frame = pl.DataFrame({"user": [number % 9 for number in range(90)], "item": [number // 9 for number in range(90)]})
    workspace = recsys.Workspace(str(tmp_path))
    config = recsys.config_from_frame(
        frame.with_row_index("time"), workspace, user="user", item="item", timestamp="time"
    )
    by_time = recsys.load_config({**config.model_dump(), "split": {"method": "temporal"}})
    data = recsys.etl(by_time, workspace, progress=False)
    with pytest.raises(ConfigError, match=rf"fold_in_targets={targets} needs cold-start users, and test has users of"):
        SplitByUser.read(data, "test", EvaluateConfig(fold_in_targets=targets))
    by_user = recsys.load_config({**config.model_dump(), "split": {"method": "user", "valid": 0.3, "test": 0.3}})
    split = SplitByUser.read(
        recsys.etl(by_user, workspace, progress=False), "test", EvaluateConfig(fold_in_targets=targets)
    )
    assert split.num_folded
