"""ConcatLinear against a plain dense layer over the concatenation."""

from __future__ import annotations

import pytest
import torch

from recsys_cli.models.embedding import Lookup
from recsys_cli.models.ranking.dense import ConcatLinear


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
