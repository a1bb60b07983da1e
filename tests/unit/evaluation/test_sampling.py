"""Drawn candidates: enough of them, none seen or relevant, as likely as they should be, and the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.held_out import HeldOut, candidate_items, hold_out
from recsys_cli.evaluation.measure import measure
from recsys_cli.evaluation.ranking import rank
from recsys_cli.evaluation.sampling import sample_candidates
from recsys_cli.evaluation.training_context import make_context
from recsys_cli.interactions import Interactions
from recsys_cli.metrics.named import title_of
from recsys_cli.models import build

NUM_ITEMS = 53
SOME = EvaluateConfig(candidates="sampled-uniform", sampled_items=7)


def _interactions(users: np.ndarray, items: np.ndarray) -> Interactions:
    return Interactions(users.astype(np.int32), items.astype(np.int32), np.ones(len(users), np.float32))


@pytest.fixture
def world() -> tuple[HeldOut, np.ndarray]:
    """100 users who met some of 50 items, of which the first has 50 times the rows of the last."""
    rng = np.random.default_rng(0)
    shares = np.arange(50, 0, -1) / np.arange(51).sum()
    items = np.concatenate([np.arange(3, NUM_ITEMS), rng.choice(np.arange(3, NUM_ITEMS), 600, p=shares)])
    train = _interactions(rng.integers(3, 103, len(items)), items)
    rows = _interactions(np.repeat(np.arange(3, 103), 3), rng.integers(3, NUM_ITEMS, 300))
    candidates = candidate_items(train, num_items=NUM_ITEMS)
    held_out = hold_out(rows, train, candidates=candidates, num_items=NUM_ITEMS, config=EvaluateConfig())
    return held_out, np.bincount(train.item_idx, minlength=NUM_ITEMS)[candidates]


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
