"""Losses of sequence models in blocks: their gradients are those of the dense formulas, and blocks bound the memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.models.sequence import losses
from recsys_cli.models.sequence.histories import first_positions
from recsys_cli.models.sequence.losses import GeneralizedBinaryCrossEntropy, Loss, SampledSoftmax, Targets, catalog_loss

USERS, WIDTH, ITEMS, DIM = 5, 7, 23, 4
LOG_EXPECTED = torch.linspace(-1, 2, ITEMS, dtype=torch.float64)
GBCE = GeneralizedBinaryCrossEntropy.calibrated(0.75, rate=0.4)


def softmax(positive: Tensor, negative: Tensor, masked: Tensor) -> Tensor:
    others = (negative - LOG_EXPECTED).masked_fill(masked, -torch.inf)
    return torch.cat([positive.unsqueeze(1), others], dim=1).logsumexp(1) - positive


def gbce(positive: Tensor, negative: Tensor, masked: Tensor) -> Tensor:
    beta = 0.4 * (0.75 * (1 - 1 / 0.4) + 1 / 0.4)
    bias = math.log(ITEMS / beta)
    return -beta * F.logsigmoid(positive - bias) - F.logsigmoid(bias - negative).masked_fill(masked, 0).sum(1)


@pytest.mark.parametrize(("loss", "dense"), [(SampledSoftmax(LOG_EXPECTED), softmax), (GBCE, gbce)])
@pytest.mark.parametrize("block", [1, ITEMS, 3 * ITEMS + 1, 10**6])
def test_blocks_have_the_gradient_of_the_dense_loss(
    loss: Loss, dense: Callable[..., Tensor], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(losses._BLOCK, "cpu", block)
    draw = torch.Generator().manual_seed(0)
    places = torch.rand(USERS, WIDTH, generator=draw) < 0.5
    places[2] = False  # a user without targets
    masked = torch.rand(USERS, WIDTH, ITEMS, generator=draw) < 0.3
    number = int(places.sum())
    parts = [torch.randn(size, DIM, generator=draw, dtype=torch.float64) for size in (number, number, ITEMS)]
    weights = torch.rand(number, generator=draw, dtype=torch.float64)
    found, expected = ([part.clone().requires_grad_() for part in parts] for _ in range(2))

    targets = Targets(places, found[0], found[1], weights)
    total = catalog_loss(targets, found[2], loss, lambda users, some: masked[users][some])
    (3 * total).backward()
    states, own, candidates = expected
    whole = (dense((states * own).sum(1), states @ candidates.T, masked[places]) * weights).sum()
    (3 * whole).backward()

    torch.testing.assert_close(total, whole, rtol=1e-9, atol=1e-9)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-9)


def test_a_block_has_a_bounded_number_of_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of the work has users × items × length in memory."""
    monkeypatch.setitem(losses._BLOCK, "cpu", 4 * ITEMS)
    sizes = []

    def masked(users: slice, some: Tensor) -> Tensor:
        sizes.append((users.stop - users.start, int(some.sum())))
        return torch.zeros(int(some.sum()), ITEMS, dtype=torch.bool)

    vectors = torch.zeros(USERS * WIDTH, DIM, requires_grad=True)
    targets = Targets(torch.ones(USERS, WIDTH, dtype=torch.bool), vectors, vectors)
    catalog_loss(targets, torch.zeros(ITEMS, DIM), SampledSoftmax(torch.zeros(ITEMS)), masked).backward()
    assert sum(number for _, number in sizes) == USERS * WIDTH
    assert max(number for _, number in sizes) == 4
    assert max(users for users, _ in sizes) == 2


def test_calibration_goes_from_binary_cross_entropy_to_the_softmax() -> None:
    """β is 1 at t = 0, and the sampling rate at t = 1."""
    powers = [GeneralizedBinaryCrossEntropy.calibrated(t, rate=0.1).power for t in (0.0, 0.75, 1.0)]
    assert powers == pytest.approx([1.0, 0.325, 0.1])


def test_first_positions_of_candidates_with_repeats() -> None:
    items = torch.tensor([[7, 8, 9, 8], [5, 6, 0, 0]])
    assert first_positions(items, torch.tensor([9, 5, 8, 9])).tolist() == [[2, 4, 1, 2], [4, 0, 4, 4]]
    assert first_positions(items, torch.tensor([5, 8, 9])).tolist() == [[4, 1, 2], [0, 4, 4]]
    assert first_positions(items, torch.tensor([], dtype=torch.int64)).shape == (2, 0)
