"""User histories and their windows, sampled negatives and sampled softmax."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.interactions import Interactions
from recsys_cli.models.sequence.histories import Histories
from recsys_cli.models.sequence.losses import SampledSoftmax, losses_of_rows
from recsys_cli.models.sequence.negatives import NegativeSampler


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
