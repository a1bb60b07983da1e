from __future__ import annotations

import math

import pytest
import torch

from recsys_cli.models.retrieval.losses import bpr, warp


def test_bpr_is_the_mean_over_pairs() -> None:
    loss = bpr(torch.tensor([2.0, 0.0]), torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    first = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2
    torch.testing.assert_close(loss, torch.tensor([first, math.log(2)]))


@pytest.mark.parametrize(
    ("negative", "expected"),
    [
        ([-2.0, -0.5, 3.0], 0.5 * (1 + 1 / 2 + 1 / 3 + 1 / 4)),  # the second trial is the first violation: rank 9 // 2
        ([0.0, 5.0, 5.0], sum(1 / place for place in range(1, 10))),  # the first one is: rank 9
        ([-3.0, -1.0, -1.5], 0.0),  # none is; a distance of just the margin is none either
    ],
)
def test_warp_weights_the_first_violation_by_the_estimated_rank(negative: list[float], expected: float) -> None:
    loss = warp(torch.tensor([0.0]), torch.tensor([negative]), num_items=10)
    torch.testing.assert_close(loss, torch.tensor([expected]))


def test_warp_has_gradients_for_the_positive_and_the_first_violation_only() -> None:
    positive, negative = torch.zeros(1, requires_grad=True), torch.tensor([[-2.0, -0.5, 3.0]], requires_grad=True)
    warp(positive, negative, num_items=10).sum().backward()
    weight = 25 / 12
    torch.testing.assert_close(positive.grad, torch.tensor([-weight]))
    torch.testing.assert_close(negative.grad, torch.tensor([[0.0, weight, 0.0]]))
