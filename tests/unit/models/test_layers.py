"""Dropout, layers over concatenated columns, and lookups of few rows, against plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.loader.records import pick_lists
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.embedding.tables import distinct
from recsys_cli.models.layers import Dropout
from recsys_cli.models.ranking.layers import ConcatLinear


@pytest.mark.parametrize("used", [1, 511, 512, 513, 1500])
def test_the_layer_and_its_gradients_are_those_of_the_concatenation(used: int) -> None:
    draw = torch.Generator().manual_seed(used)
    layer = ConcatLinear([6, 3], 2, 5)
    tables = [torch.randn(used, width, generator=draw, requires_grad=True) for width in (6, 3)]
    places = [torch.randint(0, used, (700,), generator=draw) for _ in tables]
    numbers = torch.randn(700, 2, generator=draw)
    towards = torch.randn(700, 5, generator=draw)

    output = layer([Lookup(table, place) for table, place in zip(tables, places, strict=True)], numbers)
    ours = torch.autograd.grad(output, [*tables, layer.linear.weight, layer.linear.bias], towards)
    together = torch.cat([*(table[place] for table, place in zip(tables, places, strict=True)), numbers], dim=1)
    plain = layer.linear(together)
    theirs = torch.autograd.grad(plain, [*tables, layer.linear.weight, layer.linear.bias], towards)

    torch.testing.assert_close(output, plain)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_rows_without_a_gradient_contribute_to_the_weight() -> None:
    layer = ConcatLinear([2], 0, 1)
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    layer([Lookup(rows, torch.tensor([1, 1, 0]))], torch.empty(3, 0)).sum().backward()
    assert layer.linear.weight.grad is not None
    assert layer.linear.weight.grad.tolist() == [[7.0, 10.0]]


def test_autocast_computes_in_its_own_precision() -> None:
    layer = ConcatLinear([2], 0, 1)
    rows = torch.randn(3, 2, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer([Lookup(rows, torch.tensor([0, 1, 2]))], torch.empty(3, 0))
    assert output.dtype == torch.bfloat16
    output.sum().backward()
    assert rows.grad is not None
    assert rows.grad.dtype == torch.float32


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.9])
def test_a_share_is_dropped_and_the_mean_stays(share: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(share)(torch.full((500, 401), 2.0))
    assert (dropped == 0).float().mean().item() == pytest.approx(share, abs=0.005)
    torch.testing.assert_close(dropped[dropped != 0].unique(), torch.tensor([2.0 / (1 - share)]), rtol=1e-4, atol=0)
    assert dropped.mean().item() == pytest.approx(2.0, rel=0.03)


def test_all_rows_and_columns_have_the_same_dropout_rate() -> None:
    """Four elements share a random number; none of them may follow from another."""
    torch.manual_seed(0)
    kept = Dropout(0.5)(torch.ones(20_000, 8)).bool().double()
    together = torch.corrcoef(kept.T) - torch.eye(8, dtype=torch.float64)
    assert together.abs().max().item() < 0.04


def test_the_mask_follows_from_the_seed_and_blocks_gradients() -> None:
    dropout, values = Dropout(0.4), torch.rand(7, 13, requires_grad=True)
    torch.manual_seed(3)
    first = dropout(values)
    torch.manual_seed(3)
    torch.testing.assert_close(dropout(values), first, rtol=0, atol=0)
    assert not torch.equal(dropout(values), first)
    first.sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad * values, first)


def test_no_dropout_in_evaluation_or_at_rate_0() -> None:
    values = torch.rand(5, 3)
    assert Dropout(0.9).eval()(values) is values
    assert Dropout(0.0)(values) is values
    assert torch.equal(Dropout(1.0)(values), torch.zeros(5, 3))
    assert Dropout(0.5)(torch.zeros(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("shape", [(40, 7), (40,), (40, 3, 5)], ids=str)
def test_a_row_has_the_same_mask_on_every_rank(shape: tuple[int, ...]) -> None:
    """The pieces of a step, each by a module of its own, make the whole; a layer and a step have other elements."""
    values = torch.ones(shape)

    def dropped(key: int, *spans: tuple[int, int]) -> list[torch.Tensor]:
        found = []
        for start, stop in spans:
            dropout = Dropout(0.5)
            dropout.seed_rows(key, start)
            found.append(torch.stack([dropout(values[start:stop]), dropout(values[start:stop])], dim=-1))
        return found

    (whole,) = dropped(7, (0, 40))
    torch.testing.assert_close(torch.cat(dropped(7, (0, 13), (13, 13), (13, 40))), whole, rtol=0, atol=0)
    assert not torch.equal(dropped(8, (0, 40))[0], whole)
    first, second = whole.unbind(dim=-1)
    assert not torch.equal(first, second)
    assert (whole == 0).float().mean().item() == pytest.approx(0.5, abs=0.15)


def test_seeded_rows_have_the_dropout_rate() -> None:
    dropout = Dropout(0.3)
    dropout.seed_rows(1, 0)
    dropped = dropout(torch.full((500, 401), 2.0))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    together = torch.corrcoef(dropped[:, :8].bool().double().T) - torch.eye(8, dtype=torch.float64)
    assert together.abs().max().item() < 0.2


@pytest.mark.parametrize("ids", [[], [7], [9, 3, 9, 0], list(range(8, 0, -1)), list(range(20, 0, -1))])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_distinct_ids_are_those_of_numpy(ids: list[int], dtype: torch.dtype) -> None:
    with torch.inference_mode():
        used, inverse = distinct(torch.tensor(ids, dtype=dtype))

    expected, places = np.unique(np.array(ids, np.int64), return_inverse=True)
    assert (used.dtype, inverse.dtype) == (torch.int64, torch.int64)
    assert (used.tolist(), inverse.tolist()) == (expected.tolist(), places.tolist())


@pytest.mark.parametrize("stored", [torch.uint8, torch.uint16, torch.int32, torch.float32])
@pytest.mark.parametrize("row", range(3))
def test_one_list_is_that_of_several_rows(row: int, stored: torch.dtype) -> None:
    values, weights = torch.arange(10).to(stored), torch.rand(10)
    starts, lengths = torch.tensor([6, 2, 0], dtype=torch.int32), torch.tensor([4, 3, 0], dtype=torch.int32)
    dtype = torch.float32 if stored.is_floating_point else torch.int32

    one = pick_lists(values, starts[row : row + 1], lengths[row : row + 1], dtype, weights)
    expected = pick_lists(values, starts, lengths, dtype, weights).span(row, row + 1)

    assert one.values.dtype == expected.values.dtype
    for part, other in zip(one.tensors(), expected.tensors(), strict=True):
        assert torch.equal(part, other)


@pytest.mark.parametrize("weights", [None, torch.rand(4)])
@torch.inference_mode()
def test_one_row_is_spread_as_among_several(weights: torch.Tensor | None) -> None:
    rows, inverse = torch.randn(3, 5), torch.tensor([2, 0, 2, 1])

    one = Lookup(rows, inverse, torch.tensor([0, 4]), weights).spread()
    several = Lookup(rows, inverse, torch.tensor([0, 4, 4, 4]), weights)

    assert torch.equal(one, several._counts(torch.tensor([0, 4, 4, 4]))[:1] @ rows)
    torch.testing.assert_close(one, several.spread()[:1])
    assert torch.equal(Lookup(rows[:1], torch.tensor([0])).spread(), rows[:1])
