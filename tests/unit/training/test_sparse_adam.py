from __future__ import annotations

import pytest
import torch

from recsys_cli.errors import ConfigError
from recsys_cli.training import sparse_adam
from recsys_cli.training.sparse_adam import RowAdam


def gradients(steps: int, *, coalesced: bool) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    made = []
    for step in range(steps):
        ids = torch.randint(0, 30, (1, 25), generator=draw)
        rows = torch.randn(25, 4, generator=draw) * 10.0 ** (-step % 9)
        gradient = torch.sparse_coo_tensor(ids, rows, (40, 4), check_invariants=True)
        made.append(gradient.coalesce() if coalesced else gradient)
    return made


@pytest.mark.parametrize("coalesced", [True, False])
@pytest.mark.parametrize("chunk", [1 << 20, 12])
def test_row_adam_equals_torch_sparse_adam(coalesced: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_adam, "_CHUNK", chunk)  # 12: three rows at a time
    start = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    ours_adam, theirs_adam = RowAdam([ours], lr=0.05), torch.optim.SparseAdam([theirs], lr=0.05)
    for gradient in gradients(30, coalesced=coalesced):
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        ours_adam.step()
        theirs_adam.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_row_adam_leaves_other_rows_alone() -> None:
    table = torch.randn(10, 3).requires_grad_()
    before = table.detach().clone()
    optimizer = RowAdam([table], lr=0.1)
    table.grad = torch.sparse_coo_tensor([[2, 5]], torch.ones(2, 3), (10, 3), check_invariants=True)
    optimizer.step()
    changed = (table.detach() != before).any(dim=1).nonzero().squeeze(1).tolist()
    assert changed == [2, 5]
    assert not optimizer.state[table]["exp_avg"][[0, 1, 3, 4, 6, 7, 8, 9]].any()


def test_row_adam_takes_a_gradient_without_rows() -> None:
    table = torch.randn(10, 3).requires_grad_()
    before = table.detach().clone()
    none = torch.zeros(1, 0, dtype=torch.int64)
    table.grad = torch.sparse_coo_tensor(none, torch.zeros(0, 3), (10, 3), check_invariants=True)
    RowAdam([table]).step()
    assert torch.equal(table.detach(), before)


def test_row_adam_refuses_a_dense_gradient() -> None:
    table = torch.randn(10, 3).requires_grad_()
    table.grad = torch.ones(10, 3)
    with pytest.raises(ConfigError, match="embedding tables have dense gradients"):
        RowAdam([table]).step()
