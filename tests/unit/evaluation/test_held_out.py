"""Who is ranked for, what should be found, and which candidates are drawn, counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import recsys_cli as recsys
from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.held_out import HeldOut, candidate_items, choose_targets, hold_out, sample_candidates
from recsys_cli.evaluation.loaded_run import make_context
from recsys_cli.evaluation.measure import measure
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.ranking import rank
from recsys_cli.interactions import Interactions
from recsys_cli.metrics.named import title_of
from recsys_cli.models import build

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


def test_seen_items_are_ranked_and_expected_with_repeats() -> None:
    found = problem((3, 3, 1), (3, 5, 1), repeats=True)

    assert not len(found.seen.values)
    assert found.candidates[found.relevant.values].tolist() == [3, 5]
    assert (found.num_relevant.tolist(), found.num_pairs, found.num_repeated) == ([2], 2, 1)


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


SAMPLED_FROM = 53
SOME = EvaluateConfig(candidates="sampled-uniform", sampled_items=7)


def _interactions(users: np.ndarray, items: np.ndarray) -> Interactions:
    return Interactions(users.astype(np.int32), items.astype(np.int32), np.ones(len(users), np.float32))


@pytest.fixture
def world() -> tuple[HeldOut, np.ndarray]:
    """100 users who met some of 50 items, of which the first has 50 times the rows of the last."""
    rng = np.random.default_rng(0)
    shares = np.arange(50, 0, -1) / np.arange(51).sum()
    items = np.concatenate([np.arange(3, SAMPLED_FROM), rng.choice(np.arange(3, SAMPLED_FROM), 600, p=shares)])
    train = _interactions(rng.integers(3, 103, len(items)), items)
    rows = _interactions(np.repeat(np.arange(3, 103), 3), rng.integers(3, SAMPLED_FROM, 300))
    candidates = candidate_items(train, num_items=SAMPLED_FROM)
    held_out = hold_out(rows, train, candidates=candidates, num_items=SAMPLED_FROM, config=EvaluateConfig())
    return held_out, np.bincount(train.item_idx, minlength=SAMPLED_FROM)[candidates]


def _hashes(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**63, size).astype(np.uint64)


def _sampled(world: tuple[HeldOut, np.ndarray], config: EvaluateConfig) -> HeldOut:
    held_out, counts = world
    users, items = _hashes(len(held_out.user_idx), 1), _hashes(len(counts), 2)
    return sample_candidates(held_out, counts, users=users, items=items, config=config)


def _of(lists, user: int) -> set[int]:
    return set(lists.values[lists.offsets[user] : lists.offsets[user + 1]].tolist())


@pytest.mark.parametrize("how", ["sampled-uniform", "sampled-popularity"])
def test_sampled_candidates_have_the_configured_number_and_are_neither_seen_nor_relevant(world, how: str) -> None:
    found = _sampled(world, SOME.model_copy(update={"candidates": how}))

    assert found.sampled.lengths.tolist() == [7] * len(found.user_idx)
    for user in range(len(found.user_idx)):
        assert not _of(found.sampled, user) & (_of(found.seen, user) | _of(found.relevant, user))


def test_small_catalogs_are_sampled_completely(world) -> None:
    found = _sampled(world, SOME.model_copy(update={"sampled_items": 1_000}))

    for user in range(len(found.user_idx)):
        left = set(range(50)) - _of(found.seen, user) - _of(found.relevant, user)
        assert _of(found.sampled, user) == left


def test_popularity_sampling_prefers_popular_items_and_uniform_does_not(world) -> None:
    times = {}
    for how in ("sampled-uniform", "sampled-popularity"):
        config = SOME.model_copy(update={"candidates": how, "sampled_items": 1})
        found = [_sampled(world, config.model_copy(update={"seed": seed})).sampled.values for seed in range(40)]
        times[how] = np.bincount(np.concatenate(found), minlength=50)

    # One is drawn with a chance that is as its rows in train; those of the first ten are about a third of all.
    counts = world[1]
    free = 50 * 100 - world[0].seen.lengths.sum() - world[0].relevant.lengths.sum()
    assert free > 3_000
    head = times["sampled-popularity"][:10].sum() / times["sampled-popularity"].sum()
    assert head == pytest.approx(counts[:10].sum() / counts.sum(), abs=0.08)
    assert times["sampled-uniform"][:10].sum() / times["sampled-uniform"].sum() == pytest.approx(0.18, abs=0.04)


def test_draws_follow_from_the_seed(world) -> None:
    once, again, other = (_sampled(world, SOME.model_copy(update={"seed": seed})) for seed in (5, 5, 6))

    assert np.array_equal(once.sampled.values, again.sampled.values)
    assert not np.array_equal(once.sampled.values, other.sampled.values)


def test_sampled_figures_are_named_so_wherever_they_go(make_prepared) -> None:
    data = make_prepared()
    model = build("popularity", {}, data.schema)
    model.fit(make_context(data, "train"))
    config = SOME.model_copy(update={"k": (3,), "relevance": "all", "bootstrap": 10})

    measured, rankings = measure(model.eval(), data, config)

    names = {*measured.ranking["model"], *measured.beyond["model"]}
    names |= {name for cohort in measured.cohorts for found in cohort.ranking.values() for name in found}
    assert names
    assert all(name.startswith("sampled_") for name in names)
    assert all(title_of(name).startswith("sampled ") for name in names)
    assert measured.protocol.candidates.startswith("SAMPLED")
    assert set(Outcomes.of(rankings).users) == set(measured.ranking["model"])
    assert rankings.sampled.shape[0] == len(rankings.users)
    assert 0 < rankings.sampled.shape[1] <= 7
    assert (rankings.sampled[rankings.sampled > 0] >= 3).all()


def test_only_sampled_and_relevant_items_are_ranked(world) -> None:
    import torch

    found = _sampled(world, SOME)

    ranked, num_empty = rank(found, lambda users: torch.zeros(len(users), 50), cut_off=12, block_scores=400)

    assert num_empty == 0
    for user, places in enumerate(ranked.candidates.tolist()):
        allowed = sorted(_of(found.sampled, user) | _of(found.relevant, user))  # all scores are equal, so by place
        assert places == (allowed + [-1] * 12)[:12]
        assert ranked.hits[user].tolist() == [place in _of(found.relevant, user) for place in places]


HASHES = np.random.default_rng(5).integers(0, 2**63, 40).astype(np.uint64)


def timed_rows(size: int) -> Interactions:
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
    given = timed_rows(size)
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
    given = timed_rows(400)
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
