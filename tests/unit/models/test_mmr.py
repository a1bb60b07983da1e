"""Maximal marginal relevance against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.models.configs.two_stage import Mmr
from recsys_cli.models.top_lists import rerank
from recsys_cli.models.two_stage.model import _diverse


def slow(scores: list[float], similarities: list[list[float]], k: int, diversity: float) -> list[int]:
    """MMR item by item, as in the paper."""
    low, high = min(scores), max(scores)
    relevance = [(score - low) / (high - low) if high > low else 1.0 for score in scores]
    largest = max(max(map(max, similarities)), 1e-12)
    chosen: list[int] = []
    while len(chosen) < min(k, len(scores)):
        values = {
            item: (1 - diversity) * relevance[item]
            - diversity * max([0.0, *(similarities[other][item] / largest for other in chosen)])
            for item in range(len(scores))
            if item not in chosen
        }
        chosen.append(max(values, key=lambda item: (values[item], -item)))
    return chosen


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("diversity", [0.0, 0.3, 0.7, 1.0])
def test_rerank_equals_a_plain_loop(seed: int, diversity: float) -> None:
    rng = np.random.default_rng(seed)
    number = int(rng.integers(3, 12))
    vectors = rng.standard_normal((number, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores, similarities = np.sort(rng.standard_normal(number))[::-1], vectors @ vectors.T
    k = int(rng.integers(3, number + 1))
    expected = slow(scores.tolist(), similarities.tolist(), k, diversity)
    assert rerank(scores, similarities, k=k, diversity=diversity).tolist() == expected


def test_opposite_items_are_diverse_in_two_stage_as_in_answers() -> None:
    vectors = np.array([[1.0, 0.0], [0.99, 0.141], [-1.0, 0.0]])
    scores, similarities = np.array([3.0, 2.0, 1.9], np.float32), vectors @ vectors.T
    order = rerank(scores, similarities, k=3, diversity=0.8)
    assert order.tolist() == [0, 2, 1]
    options = Mmr(name="mmr", diversity=0.8, pool=3, top=3)
    assert _diverse(options, torch.from_numpy(scores), torch.from_numpy(similarities)).tolist() == [0, 2, 1]
