"""Histories: their order, packing into batches, and the losses over them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.errors import ConfigError
from recsys_cli.interactions import Interactions
from recsys_cli.models.sequence import hstu, losses
from recsys_cli.models.sequence.histories import Group, Histories, Jagged
from recsys_cli.models.sequence.losses import (
    FalseNegatives,
    GeneralizedBinaryCrossEntropy,
    Loss,
    NegativeSampler,
    SampledSoftmax,
    Targets,
    catalog_loss,
    losses_of_rows,
)
from tests.unit.models.sequence_memory import step_memory


def interactions(rows: list[tuple[int, int, int, int]]) -> Interactions:
    """Rows of user, item, label and time."""
    users, items, labels, times = np.array(rows).T
    return Interactions(users.astype(np.int32), items.astype(np.int32), labels.astype(np.float32), times=times)


ROWS = [
    (4, 9, 1, 30), (3, 5, 1, 10), (4, 8, 0, 20), (4, 7, 1, 20), (3, 6, 0, 5),
    (4, 2, 1, 25), (2, 5, 1, 1), (1, 5, 1, 1), (6, 3, 1, -4),
]  # fmt: skip


def histories(rows: list[tuple[int, int, int, int]] = ROWS, *, positive_only: bool = False) -> Histories:
    return Histories.of(interactions(rows), num_users=8, positive_only=positive_only)


def test_histories_are_sorted_by_time_then_row() -> None:
    """User 4 has items 8 and 7 at the same time; ids 1 and 2 are no vocabulary values."""
    found = histories()
    assert found.items.tolist() == [6, 5, 8, 7, 9, 3]
    assert found.offsets.tolist() == [0, 0, 0, 0, 2, 5, 5, 6, 6]


def test_positive_only_leaves_out_label_0() -> None:
    assert histories(positive_only=True).items.tolist() == [5, 7, 9, 3]


def test_last_items_are_packed() -> None:
    """An empty window has one place with padding."""
    windows = histories().last(torch.tensor([4, 7, 3, 0]), 2)
    assert windows.items.tolist() == [7, 9, 0, 6, 5, 0]
    assert windows.counts.tolist() == [2, 0, 2, 0]
    assert windows.layout.offsets.tolist() == [0, 2, 3, 5, 6]
    assert histories().last(torch.tensor([6], dtype=torch.int32), 4).items.tolist() == [3]


def test_windows_of_empty_histories_are_padding() -> None:
    nothing = histories(ROWS[5:8])
    assert nothing.last(torch.tensor([4, 7]), 3).items.tolist() == [0, 0]
    assert nothing.random_windows(torch.tensor([4]), 3).counts.tolist() == [0]


def test_longest_histories_come_first() -> None:
    assert histories().longest_first(torch.tensor([0, 6, 4, 3, 7], dtype=torch.int32)).tolist() == [2, 3, 1, 0, 4]


def test_random_windows_start_uniformly() -> None:
    found = histories([(3, 3 + number, 1, number) for number in range(10)] + [(4, 20, 1, 0), (4, 21, 1, 1)])
    torch.manual_seed(0)
    windows = found.random_windows(torch.tensor([3] * 7_000 + [4]), 4)
    items = windows.items[:-2].view(-1, 4)
    first = items[:, 0]
    assert torch.equal(items, first.unsqueeze(1) + torch.arange(4))
    assert windows.items[-2:].tolist() == [20, 21]
    counts = torch.bincount(first)[3:]
    assert len(counts) == 7
    assert ((counts - 1_000).abs() < 150).all()  # five standard deviations
    assert found.mean_count(4) == 3.0


def sampled_softmax(positive: Tensor, negative: Tensor, log_expected: Tensor, masked: Tensor) -> Tensor:
    return losses_of_rows(SampledSoftmax(log_expected), positive, negative, masked)


def test_data_without_timestamps_are_rejected() -> None:
    rows = interactions(ROWS)
    with pytest.raises(ConfigError, match="needs timestamps") as caught:
        Histories.of(Interactions(rows.user_idx, rows.item_idx, rows.labels), num_users=8, positive_only=False)
    assert "features.timestamp" in str(caught.value.hint)


def test_sampled_softmax_equals_a_hand_computed_example() -> None:
    negative = torch.tensor([[0.0, 2.0], [0.0, 2.0]])
    hits = torch.tensor([[False, False], [False, True]])
    losses = sampled_softmax(torch.tensor([1.0, 1.0]), negative, torch.tensor([0.5, 2.0]).log(), hits)
    both, one = math.e + 1 / 0.5 + math.e**2 / 2, math.e + 1 / 0.5
    torch.testing.assert_close(losses, torch.tensor([both, one]).log() - 1)


def test_softmax_over_all_items_is_the_cross_entropy() -> None:
    torch.manual_seed(0)
    scores, targets = torch.randn(5, 12), torch.tensor([0, 11, 3, 3, 7])
    drawn, log_expected = NegativeSampler(torch.arange(15), number=12, power=1.0).sample()
    assert drawn.tolist() == list(range(3, 15))
    hits = (targets + 3).unsqueeze(1) == drawn
    losses = sampled_softmax(scores[torch.arange(5), targets], scores, log_expected, hits)
    torch.testing.assert_close(losses, torch.nn.functional.cross_entropy(scores, targets, reduction="none"))


def test_the_gradient_of_a_sampled_softmax_is_that_of_its_formula() -> None:
    torch.manual_seed(0)
    positive, negative = torch.randn(6, requires_grad=True), torch.randn(6, 9, requires_grad=True)
    log_expected, hits, weight = torch.randn(9), torch.rand(6, 9) < 0.3, torch.rand(6)
    terms = torch.where(hits, 0.0, (negative - log_expected).exp())
    written_out = (positive.exp() + terms.sum(dim=1)).log() - positive
    losses = sampled_softmax(positive, negative, log_expected, hits)
    torch.testing.assert_close(losses, written_out)
    expected = torch.autograd.grad((written_out * weight).sum(), [positive, negative])
    found = torch.autograd.grad((losses * weight).sum(), [positive, negative])
    torch.testing.assert_close(found, expected)
    assert not found[1][hits].any()


def test_the_gradient_has_no_subnormal_numbers() -> None:
    negative = torch.tensor([[0.0, -38.0, -45.0, -88.0, -100.0, -3e38]], requires_grad=True)
    sampled_softmax(torch.zeros(1), negative, torch.zeros(6), torch.zeros(1, 6, dtype=torch.bool)).sum().backward()
    assert negative.grad is not None
    torch.testing.assert_close(negative.grad[0, :2], torch.tensor([0.0, -38.0]).exp() / 2, atol=0, rtol=1e-4)
    assert not negative.grad[0, 2:].any()


def test_a_target_as_its_only_negative_has_no_loss() -> None:
    positive = torch.tensor([1.0], requires_grad=True)
    loss = sampled_softmax(positive, positive.unsqueeze(1), torch.zeros(1), torch.tensor([[True]]))
    loss.sum().backward()
    assert loss.item() == 0
    assert positive.grad is not None
    assert torch.isfinite(positive.grad).all()


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_a_sample_estimates_the_sum_over_the_catalog(power: float) -> None:
    torch.manual_seed(0)
    counts, scores = torch.arange(1, 41), torch.randn(40) / 2
    negatives = NegativeSampler(counts, number=10, power=power)
    sums = [(scores[drawn] - log).exp().sum() for drawn, log in (negatives.sample() for _ in range(4_000))]
    assert torch.stack(sums).mean().item() == pytest.approx(scores[3:].exp().sum().item(), rel=0.02)


def test_negatives_are_sampled_by_frequency() -> None:
    torch.manual_seed(0)
    negatives = NegativeSampler(torch.tensor([5, 5, 5, 1, 0, 3]), number=2, power=1.0)
    drawn = torch.cat([negatives.sample()[0] for _ in range(4_000)])
    assert (torch.bincount(drawn, minlength=6) / 8_000).tolist() == pytest.approx([0, 0, 0, 0.25, 0, 0.75], abs=0.03)


@pytest.mark.parametrize(
    ("counts", "groups"),
    [
        ([100, 80, 75, 74, 20, 16, 1], [(3, 100), (1, 74), (2, 20), (1, 1)]),
        ([1, 16, 20, 74, 75, 80, 100], [(2, 16), (1, 20), (3, 80), (1, 100)]),
        ([50, 50, 50], [(3, 50)]),
        ([1], [(1, 1)]),
    ],
)
def test_a_group_has_consecutive_sequences_of_similar_lengths(counts: list[int], groups: list[tuple[int, int]]) -> None:
    found = Jagged(torch.tensor(counts)).groups
    assert [(len(group.counts), group.length) for group in found] == groups
    assert [group.counts.tolist() for group in found] == [
        part.tolist() for part in torch.tensor(counts).split([n for n, _ in groups])
    ]


def test_groups_are_padded_with_zeros_and_packed_again() -> None:
    layout = Jagged(torch.tensor([20, 19, 3, 1]))
    values = torch.arange(1.0, 44).unsqueeze(1).requires_grad_()
    padded: list[Tensor] = []

    def doubled(group: Group, part: Tensor) -> Tensor:
        padded.append(part)
        return part * 2 + 1  # also padding, which packing leaves out

    found = layout.map(doubled, values)
    torch.testing.assert_close(found, values * 2 + 1)
    found.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[2.0]] * 43
    assert [tuple(part.shape) for part in padded] == [(2, 20, 1), (2, 3, 1)]
    assert padded[1].squeeze(2).tolist() == [[40, 41, 42], [43, 0, 0]]
    assert layout.groups[1].mask is not None
    assert layout.groups[1].mask.tolist() == [[True, True, True], [True, False, False]]


def test_places_of_items() -> None:
    layout = Jagged(torch.tensor([2, 1, 3]))
    assert layout.rows.tolist() == [0, 0, 1, 2, 2, 2]
    assert layout.positions.tolist() == [0, 1, 0, 0, 1, 2]
    assert layout.offsets.tolist() == [0, 2, 3, 6]
    assert layout.last.tolist() == [1, 2, 5]


def _written_out(inputs: list[Tensor], by_distance: Tensor, by_time: Tensor | None, times: Tensor) -> Tensor:
    query, key, value = inputs
    length = query.shape[2]
    places = torch.arange(length)
    scores = query @ key.mT + by_distance[(places.unsqueeze(1) - places).clamp(min=0)]
    if by_time is not None:
        scores = scores + by_time[hstu.time_buckets(times, times)].unsqueeze(1)
    weights = torch.nn.functional.silu(scores).tril() / torch.arange(1, length + 1).unsqueeze(1)
    return weights @ value


@pytest.mark.parametrize("with_times", [True, False])
@pytest.mark.parametrize("block", [1, 500, 10**6])
def test_pointwise_attention_in_blocks_is_that_of_all_pairs(
    block: int, with_times: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(hstu._BLOCK, "cpu", block)
    monkeypatch.setattr(hstu, "_QUERIES", 5)
    torch.manual_seed(0)
    times = torch.rand(3, 17, dtype=torch.float64).mul_(1e5).cumsum(1)
    parts = [*(torch.randn(3, 2, 17, 4) for _ in range(3)), torch.randn(20), torch.randn(hstu.BUCKETS)]
    found, expected = ([part.clone().requires_grad_() for part in parts] for _ in range(2))
    by_time = [leaves[4] if with_times else None for leaves in (found, expected)]
    outward = torch.randn(3, 2, 17, 4)

    one = hstu.pointwise_attention((found[0], found[1], found[2]), found[3], by_time[0], times if with_times else None)
    other = _written_out(expected[:3], expected[3], by_time[1], times)
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    one.backward(outward)
    other.backward(outward)
    for mine, theirs in zip(found[: 4 + with_times], expected, strict=False):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sasrec", "hstu", "bert4rec", "gru4rec"])
def test_memory_follows_the_items(name: str) -> None:
    """31 users of 5 items add a third to the memory of one of 800, and twice the length takes twice as much."""
    options: dict[str, Any] = {"embedding_dim": 16, "max_seq_len": 1_600, "num_negatives": 32}
    alone, longer = step_memory(name, [800], options), step_memory(name, [1_600], options)
    together = step_memory(name, [800] + [5] * 31, options)
    assert together < 1.5 * alone
    assert longer < 2.3 * alone


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
