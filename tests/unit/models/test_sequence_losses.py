"""Losses of sequence models in blocks: their gradients are those of the dense formulas, and blocks bound the memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.models.sequence import losses
from recsys_cli.models.sequence.false_negatives import FalseNegatives
from recsys_cli.models.sequence.losses import GeneralizedBinaryCrossEntropy, Loss, SampledSoftmax, Targets, catalog_loss

TARGETS, ITEMS, DIM = 19, 23, 4
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
    columns = torch.randint(ITEMS, (40,), generator=draw)
    first, last = torch.randint(TARGETS + 1, (2, 40), generator=draw)  # also empty ranges
    masked = torch.zeros(TARGETS, ITEMS, dtype=torch.bool)
    for column, start, stop in zip(columns, first, last, strict=True):
        masked[start:stop, column] = True
    parts = [torch.randn(size, DIM, generator=draw, dtype=torch.float64) for size in (TARGETS, TARGETS, ITEMS)]
    weights = torch.rand(TARGETS, generator=draw, dtype=torch.float64)
    found, expected = ([part.clone().requires_grad_() for part in parts] for _ in range(2))

    total = catalog_loss(Targets(found[0], found[1], weights), found[2], loss, FalseNegatives(columns, first, last))
    (3 * total).backward()
    states, own, candidates = expected
    whole = (dense((states * own).sum(1), states @ candidates.T, masked) * weights).sum()
    (3 * whole).backward()

    torch.testing.assert_close(total, whole, rtol=1e-9, atol=1e-9)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-9)


def test_a_block_has_a_bounded_number_of_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(losses._BLOCK, "cpu", 4 * ITEMS)
    shapes = []

    def loss(positive: Tensor, negative: Tensor) -> losses.Terms:
        shapes.append(tuple(negative.shape))
        return SampledSoftmax(torch.zeros(ITEMS))(positive, negative)

    vectors, nothing = torch.zeros(TARGETS, DIM, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    catalog_loss(
        Targets(vectors, vectors), torch.zeros(ITEMS, DIM), loss, FalseNegatives(nothing, nothing, nothing)
    ).backward()
    assert shapes == [(4, ITEMS)] * 4 + [(3, ITEMS)]


def test_calibration_goes_from_binary_cross_entropy_to_the_softmax() -> None:
    """β is 1 at t = 0, and the sampling rate at t = 1."""
    powers = [GeneralizedBinaryCrossEntropy.calibrated(t, rate=0.1).power for t in (0.0, 0.75, 1.0)]
    assert powers == pytest.approx([1.0, 0.325, 0.1])


def test_false_negatives_are_found_among_negatives_with_repeats() -> None:
    items, first, last = torch.tensor([7, 8, 9]), torch.tensor([0, 1, 3]), torch.tensor([4, 3, 4])
    pairs = FalseNegatives.of(items, first, last, torch.tensor([9, 5, 8, 9, 7]))

    def rows(block: slice) -> list[str]:
        scores = torch.zeros(block.stop - block.start, 5)
        scores.view(-1)[pairs.of_block(block, 5)] = 1
        return ["".join(".x"[int(one)] for one in row) for row in scores]

    assert rows(slice(0, 5)) == ["....x", "..x.x", "..x.x", "x..xx", "....."]
    assert rows(slice(2, 4)) == ["..x.x", "x..xx"]


def test_no_negative_is_false() -> None:
    nothing = FalseNegatives.of(torch.tensor([3]), torch.tensor([0]), torch.tensor([2]), torch.tensor([4, 5]))
    assert nothing.of_block(slice(0, 2), 2).tolist() == []
