"""Conditions for the use of FBGEMM's kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from recsys_cli.training import fbgemm

IDS = torch.tensor([1, 3])


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    fbgemm._kernel.cache_clear()
    yield
    fbgemm._kernel.cache_clear()


def test_without_fbgemm_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fbgemm, "installed", lambda _: None)
    table = torch.ones(5, 4)
    assert not fbgemm.sgd(table, IDS, torch.ones(2, 4), lr=1.0)
    assert not fbgemm.adagrad(table, IDS, torch.ones(2, 4), torch.zeros(5), lr=1.0, eps=1e-8)
    assert torch.equal(table, torch.ones(5, 4))


def test_an_fbgemm_for_another_torch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fbgemm, "installed", lambda _: "1.0.3")
    monkeypatch.setattr(fbgemm, "import_module", lambda _: pytest.fail("it may crash when it is loaded"))
    assert fbgemm._kernel("sgd") is None


@pytest.mark.skipif(fbgemm._kernel("sgd") is None, reason="FBGEMM is not installed")
def test_a_kernel_with_other_arguments_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fbgemm._kernel("sgd") is not None
    fbgemm._kernel.cache_clear()
    monkeypatch.setitem(fbgemm._SCHEMA, "sgd", fbgemm._SCHEMA["sgd"] + " momentum")
    assert fbgemm._kernel("sgd") is None


@pytest.mark.skipif(fbgemm._kernel("sgd") is None, reason="FBGEMM is not installed")
def test_tables_that_the_kernel_does_not_take_are_left_to_torch() -> None:
    for table in (torch.ones(5, 4, dtype=torch.float64), torch.ones(4, 5).t()):
        assert not fbgemm.sgd(table, IDS, torch.ones(2, 4, dtype=table.dtype), lr=1.0)
        assert torch.equal(table, torch.ones_like(table))
    table = torch.ones(5, 4)
    assert fbgemm.sgd(table, IDS, torch.ones(2, 4), lr=0.5)
    assert table.sum(1).tolist() == [4.0, 2.0, 4.0, 2.0, 4.0]
