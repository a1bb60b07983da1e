"""The blockwise ranking equals sorting each user's items by hand."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.breakdown import UNION, measure_stages
from recsys_cli.evaluation.held_out import candidate_items, hold_out
from recsys_cli.evaluation.ranking import rank
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import RANKING, Ranked
from recsys_cli.models.model import Model, Stage
from recsys_cli.models.top_lists import top_places

NUM_USERS, NUM_ITEMS = 43, 57


def _random(rng: np.random.Generator, size: int, *, items: int) -> Interactions:
    return Interactions(
        rng.integers(3, NUM_USERS + 3, size).astype(np.int32),
        rng.integers(2, items, size).astype(np.int32),
        rng.integers(0, 2, size).astype(np.float32),
    )


@pytest.fixture
def world():
    rng = np.random.default_rng(0)
    train, rows = _random(rng, 600, items=NUM_ITEMS - 5), _random(rng, 300, items=NUM_ITEMS)
    config = EvaluateConfig()
    candidates = candidate_items(train, num_items=NUM_ITEMS)
    held_out = hold_out(rows, train, candidates=candidates, num_items=NUM_ITEMS, config=config)
    # Few distinct values, so that there are ties everywhere.
    scores = rng.integers(-3, 4, (NUM_USERS + 3, NUM_ITEMS)).astype(np.float32)
    return train, rows, held_out, scores


def _scorer(scores, held_out):
    return lambda user_idx: torch.from_numpy(scores[user_idx][:, held_out.candidates].copy())


def _by_hand(train, rows, scores, user, k):
    """Rank one user's items in plain Python: the hits, and how much there was to find."""
    counts = np.bincount(train.item_idx, minlength=NUM_ITEMS)
    seen = set(train.item_idx[train.user_idx == user])
    items = [i for i in range(3, NUM_ITEMS) if counts[i] and i not in seen]
    items.sort(key=lambda i: (-scores[user, i], -counts[i], i))
    liked = [i for u, i, y in zip(rows.user_idx, rows.item_idx, rows.labels, strict=True) if u == user and y]
    relevant = {i for i in liked if i >= 3} - seen
    return [i in relevant for i in items[:k]], len(relevant) + sum(i == 2 for i in liked)


@pytest.mark.parametrize("block_scores", [1, 130, 10**9])
def test_rank_equals_sorting_by_hand_whatever_the_block(world, block_scores: int) -> None:
    train, rows, held_out, scores = world

    ranked, num_empty = rank(held_out, _scorer(scores, held_out), cut_off=10, block_scores=block_scores)

    assert num_empty == 0
    assert len(held_out.user_idx) > 30
    for row, user in enumerate(held_out.user_idx):
        hits, num_relevant = _by_hand(train, rows, scores, user, 10)
        assert ranked.hits[row].tolist() == hits
        assert ranked.num_relevant[row] == num_relevant


def test_oracle_ranks_perfectly_except_for_unreachable_items(world) -> None:
    _, rows, held_out, _ = world
    liked = np.zeros((NUM_USERS + 3, NUM_ITEMS), np.float32)
    np.maximum.at(liked, (rows.user_idx, rows.item_idx), rows.labels)

    ranked, _ = rank(held_out, _scorer(liked, held_out), cut_off=NUM_ITEMS)

    found = ranked.hits.sum(axis=1)
    assert found.sum() == len(held_out.relevant.values)
    assert (np.argsort(~ranked.hits, axis=1, kind="stable") == np.arange(NUM_ITEMS)).all()  # hits first
    reachable = found == ranked.num_relevant
    assert RANKING["ndcg"].compute(ranked, 50)[reachable] == pytest.approx(1)
    assert (RANKING["recall"].compute(ranked, 50)[~reachable] < 1).all()


def test_user_who_has_seen_everything_counts_as_zero(world) -> None:
    train = Interactions(np.array([3, 3, 4], np.int32), np.array([3, 4, 3], np.int32), np.ones(3, np.float32))
    rows = Interactions(np.array([3, 4], np.int32), np.array([2, 4], np.int32), np.ones(2, np.float32))
    candidates = candidate_items(train, num_items=5)
    held_out = hold_out(rows, train, candidates=candidates, num_items=5, config=EvaluateConfig())

    ranked, num_empty = rank(held_out, lambda users: torch.zeros(len(users), 2), cut_off=5)

    assert num_empty == 1
    assert ranked.hits.tolist() == [[False] * 5, [True, False, False, False, False]]


def test_more_places_than_candidates_are_empty(world) -> None:
    _, _, held_out, scores = world

    ranked, _ = rank(held_out, _scorer(scores, held_out), cut_off=200)

    assert ranked.hits.shape == (len(held_out.user_idx), 200)
    assert not ranked.hits[:, len(held_out.candidates) :].any()


def test_top_places_sorts_all_floats_and_breaks_ties_by_place() -> None:
    row = [0.0, -0.0, 1e-45, -1e-45, -1.5, 3e38, -3e38, float("-inf"), -1.5, 3e38]

    (order,) = top_places(torch.tensor([row]), 10).tolist()

    assert order == sorted(range(10), key=lambda place: (-row[place], place))


def test_top_places_do_not_depend_on_the_cut_off() -> None:
    scores = torch.randint(0, 5, (8, 1_000), generator=torch.Generator().manual_seed(0)).float()

    everything = scores.argsort(dim=1, descending=True, stable=True)

    for k in (1, 10, 999):
        assert torch.equal(top_places(scores, k), everything[:, :k])


@pytest.mark.parametrize("num_places", [159, 1_000, 20_011])
@pytest.mark.parametrize("distinct", [2, 40, 1_000_000])
@pytest.mark.parametrize("neighbours", ["candidates", "users"])
def test_top_places_of_wide_rows_are_those_of_sorting(num_places: int, distinct: int, neighbours: str) -> None:
    generator = torch.Generator().manual_seed(1)
    scores = torch.randint(0, distinct, (5, num_places), generator=generator).float()
    scores[torch.rand(scores.shape, generator=generator) < 0.3] = -torch.inf
    scores[0] = 7
    scores[1, : num_places - 3] = -torch.inf

    everything = scores.argsort(dim=1, descending=True, stable=True)
    if neighbours == "users":
        scores = scores.T.contiguous().T

    for k in (1, 3, 10, 100):
        assert torch.equal(top_places(scores, k), everything[:, :k])


def test_places_are_those_of_the_hits(world) -> None:
    _, _, held_out, scores = world

    ranked, _ = rank(held_out, _scorer(scores, held_out), cut_off=NUM_ITEMS)

    for row, user in enumerate(held_out.user_idx):
        seen, relevant = (
            set(lists.values[lists.offsets[row] : lists.offsets[row + 1]].tolist())
            for lists in (held_out.seen, held_out.relevant)
        )
        order = sorted(range(len(held_out.candidates)), key=lambda p: (-scores[user, held_out.candidates[p]], p))
        free = [place for place in order if place not in seen]
        assert ranked.candidates[row].tolist() == free + [-1] * (NUM_ITEMS - len(free))
        assert ranked.hits[row, : len(free)].tolist() == [place in relevant for place in free]


def test_recall_of_the_union_counts_each_item_once_and_only_candidates() -> None:
    """User 0 wants 1, 2 and 3: both generators find 1, one finds 2. User 1 wants 4 and 5: 5 is behind the candidates."""

    def ranked(candidates: list[list[int]], hits: list[list[bool]]) -> Ranked:
        return Ranked(np.array(hits), np.array([3, 2]), np.array(candidates, np.int32))

    lists = {
        "one": ranked([[1, 7, 9], [4, 8, -1]], [[True, False, False], [True, False, False]]),
        "two": ranked([[1, 2, 8], [7, 8, 5]], [[True, True, False], [False, False, True]]),
    }
    stages = {name: Stage(cast("Model", None), k=2) for name in lists}
    found = measure_stages(
        stages, lambda name, *_: lists[name], lists["two"], EvaluateConfig(k=[3], bootstrap=10), name="whole"
    )
    recalls = {one.name: one.recall.value for one in found if one.recall is not None}
    assert recalls == pytest.approx({"one": (1 / 3 + 1 / 2) / 2, "two": 2 / 3 / 2, UNION: (2 / 3 + 1 / 2) / 2})
