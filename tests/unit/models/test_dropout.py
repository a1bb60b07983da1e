"""Dropout with 16 bits per element: its rate, its scaling, and its reproducibility by torch's generator."""

from __future__ import annotations

import pytest
import torch

from recsys_cli.models.dropout import Dropout


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
