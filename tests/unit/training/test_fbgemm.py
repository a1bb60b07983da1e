"""Conditions for the use of FBGEMM's kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from recsys_cli.training import row_optimizers

IDS = torch.tensor([1, 3])


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    row_optimizers._kernel.cache_clear()
    yield
    row_optimizers._kernel.cache_clear()


def test_without_fbgemm_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_optimizers, "installed", lambda _: None)
    table = torch.ones(5, 4)
    assert not row_optimizers.fbgemm_sgd(table, IDS, torch.ones(2, 4), lr=1.0)
    assert not row_optimizers.fbgemm_adagrad(table, IDS, torch.ones(2, 4), torch.zeros(5), lr=1.0, eps=1e-8)
    assert torch.equal(table, torch.ones(5, 4))


def test_an_fbgemm_for_another_torch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_optimizers, "installed", lambda _: "1.0.3")
    monkeypatch.setattr(row_optimizers, "import_module", lambda _: pytest.fail("it may crash when it is loaded"))
    assert row_optimizers._kernel("sgd") is None


@pytest.mark.skipif(row_optimizers._kernel("sgd") is None, reason="FBGEMM is not installed")
def test_a_kernel_with_other_arguments_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert row_optimizers._kernel("sgd") is not None
    row_optimizers._kernel.cache_clear()
    monkeypatch.setitem(row_optimizers._SCHEMA, "sgd", row_optimizers._SCHEMA["sgd"] + " momentum")
    assert row_optimizers._kernel("sgd") is None


@pytest.mark.skipif(row_optimizers._kernel("sgd") is None, reason="FBGEMM is not installed")
def test_tables_that_the_kernel_does_not_take_are_left_to_torch() -> None:
    for table in (torch.ones(5, 4, dtype=torch.float64), torch.ones(4, 5).t()):
        assert not row_optimizers.fbgemm_sgd(table, IDS, torch.ones(2, 4, dtype=table.dtype), lr=1.0)
        assert torch.equal(table, torch.ones_like(table))
    table = torch.ones(5, 4)
    assert row_optimizers.fbgemm_sgd(table, IDS, torch.ones(2, 4), lr=0.5)
    assert table.sum(1).tolist() == [4.0, 2.0, 4.0, 2.0, 4.0]
