"""Packed sequences: groups of similar lengths have every item once, and memory follows the items of a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from recsys_cli.models.hstu import attention
from recsys_cli.models.sequence.jagged import Group, Jagged
from tests.unit.models.sequence_memory import step_memory


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
        scores = scores + by_time[attention.time_buckets(times, times)].unsqueeze(1)
    weights = torch.nn.functional.silu(scores).tril() / torch.arange(1, length + 1).unsqueeze(1)
    return weights @ value


@pytest.mark.parametrize("with_times", [True, False])
@pytest.mark.parametrize("block", [1, 500, 10**6])
def test_pointwise_attention_in_blocks_is_that_of_all_pairs(
    block: int, with_times: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(attention._BLOCK, "cpu", block)
    monkeypatch.setattr(attention, "_QUERIES", 5)
    torch.manual_seed(0)
    times = torch.rand(3, 17, dtype=torch.float64).mul_(1e5).cumsum(1)
    parts = [*(torch.randn(3, 2, 17, 4) for _ in range(3)), torch.randn(20), torch.randn(attention.BUCKETS)]
    found, expected = ([part.clone().requires_grad_() for part in parts] for _ in range(2))
    by_time = [leaves[4] if with_times else None for leaves in (found, expected)]
    outward = torch.randn(3, 2, 17, 4)

    one = attention.pointwise_attention(
        (found[0], found[1], found[2]), found[3], by_time[0], times if with_times else None
    )
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
