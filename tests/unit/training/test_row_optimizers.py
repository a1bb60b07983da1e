"""Row-wise optimizers against torch's own optimizers, a formula, and FBGEMM."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.training import row_optimizers
from recsys_cli.training.row_optimizers import RowAdagrad, RowAdam, RowOptimizer, RowSGD

ROWS, DIM, RATE = 40, 4, 0.05
Make = Callable[[Tensor], RowOptimizer]
RULES: dict[str, Make] = {
    "adam": lambda table: RowAdam([table], lr=RATE),
    "adagrad": lambda table: RowAdagrad([table], lr=RATE),
    "sgd": lambda table: RowSGD([table], lr=RATE),
}
every_rule = pytest.mark.parametrize("rule", RULES)


@pytest.fixture(params=["torch", "fbgemm"], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every test with and without FBGEMM's kernels."""
    if request.param == "torch":
        monkeypatch.setattr(row_optimizers, "_kernel", lambda _: None)
    elif row_optimizers._kernel("sgd") is None:
        pytest.skip("FBGEMM is not installed")
    return request.param


def gradients(steps: int, *, coalesced: bool = True) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    made = []
    for step in range(steps):
        ids = torch.randint(0, 30, (1, 25), generator=draw)
        rows = torch.randn(25, DIM, generator=draw) * 10.0 ** (-step % 9)
        gradient = torch.sparse_coo_tensor(ids, rows, (ROWS, DIM), check_invariants=True)
        made.append(gradient.coalesce() if coalesced else gradient)
    return made


def new_table() -> Tensor:
    return torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(1)).requires_grad_()


class DenseAdagrad:
    """Reference row-wise Adagrad of a dense gradient; zero rows do not change."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.total = torch.zeros(ROWS, dtype=torch.float64)

    @torch.no_grad()
    def step(self) -> None:
        gradient = self.table.grad.to_dense().double()
        self.total += (gradient**2).mean(1)
        self.table -= (RATE * gradient / (self.total.sqrt() + 1e-8)[:, None]).float()


PEERS: dict[str, Callable[[Tensor], object]] = {
    "adam": lambda table: torch.optim.SparseAdam([table], lr=RATE),
    "adagrad": DenseAdagrad,
    "sgd": lambda table: torch.optim.SGD([table], lr=RATE),
}


@every_rule
@pytest.mark.parametrize("coalesced", [True, False])
@pytest.mark.parametrize("chunk", [1 << 20, 3 * DIM])
def test_a_rule_equals_what_others_compute(
    rule: str, coalesced: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_optimizers, "_PART", chunk)  # the small one is three rows at a time
    ours, theirs = new_table(), new_table()
    our_optimizer, peer = RULES[rule](ours), PEERS[rule](theirs)
    for gradient in gradients(30, coalesced=coalesced):
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        our_optimizer.step()
        peer.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", ["adam", "adagrad"])
def test_tiny_gradients_meet_eps_as_others_add_it(rule: str) -> None:
    """Gradients as small as eps, 1e-8: the position of eps, before or after the bias correction, decides the step."""
    ours, theirs = new_table(), new_table()
    our_optimizer, peer = RULES[rule](ours), PEERS[rule](theirs)
    for gradient in gradients(10):
        ours.grad = gradient.sign() * 1e-8
        theirs.grad = ours.grad.clone()
        our_optimizer.step()
        peer.step()
    moved = theirs.detach() - new_table().detach()
    assert moved.abs().max() > 0.01
    torch.testing.assert_close(ours.detach() - new_table().detach(), moved, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(  # FBGEMM has its Adam for GPUs alone
    ("rule", "kind", "names"), [("adagrad", "EXACT_ROWWISE_ADAGRAD", ["sum"]), ("sgd", "EXACT_SGD", [])]
)
def test_a_rule_equals_table_batched_embeddings(rule: str, kind: str, names: list[str]) -> None:
    training = pytest.importorskip(
        "fbgemm_gpu.split_table_batched_embeddings_ops_training", reason="FBGEMM is not installed"
    )
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    theirs = training.SplitTableBatchedEmbeddingBagsCodegen(
        [(ROWS, DIM, training.EmbeddingLocation.HOST, training.ComputeDevice.CPU)],
        optimizer=EmbOptimType[kind],
        learning_rate=RATE,
        eps=1e-8,
    )
    ours = new_table()
    theirs.split_embedding_weights()[0].copy_(ours.detach())
    optimizer = RULES[rule](ours)
    draw = torch.Generator().manual_seed(2)
    for _ in range(10):
        ids = torch.randint(0, 30, (25,), generator=draw)  # some of them more than once
        towards = torch.randn(25, DIM, generator=draw)
        theirs(ids, torch.arange(26)).backward(towards)
        ours.grad = torch.sparse_coo_tensor(ids[None], towards, (ROWS, DIM), check_invariants=True)
        optimizer.step()
        torch.testing.assert_close(ours.detach(), theirs.split_embedding_weights()[0], rtol=1e-4, atol=1e-5)
    for name, held in zip(names, theirs.split_optimizer_states()[0] if names else [], strict=True):
        torch.testing.assert_close(optimizer.state[ours][name], held, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", ["adagrad", "sgd"])
@pytest.mark.parametrize("dim", [1, 3, 16, 37])
@pytest.mark.parametrize("rows", [1, 1000])
def test_fbgemm_takes_tables_of_any_shape(rule: str, dim: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(3)
    start = torch.randn(rows, dim, generator=draw)
    ids = torch.randperm(rows, generator=draw)[: rows // 2 + 1].sort().values
    gradient = torch.randn(len(ids), dim, generator=draw)
    tables = []
    for kernel in (row_optimizers._kernel, lambda _: None):
        monkeypatch.setattr(row_optimizers, "_kernel", kernel)
        table = start.clone().requires_grad_()
        optimizer = RULES[rule](table)
        for _ in range(2):
            table.grad = torch.sparse_coo_tensor(ids[None], gradient, (rows, dim), check_invariants=True)
            optimizer.step()
        tables.append(table)
    torch.testing.assert_close(*tables)


@every_rule
def test_other_rows_are_left_alone(rule: str) -> None:
    table = new_table()
    before = table.detach().clone()
    optimizer = RULES[rule](table)
    for ids in ([2, 5], [5, 7]):
        table.grad = torch.sparse_coo_tensor([ids], torch.ones(2, DIM), (ROWS, DIM), check_invariants=True)
        optimizer.step()
    assert (table.detach() != before).any(dim=1).nonzero().squeeze(1).tolist() == [2, 5, 7]
    for value in optimizer.state[table].values():
        if value.dim():
            assert value.reshape(ROWS, -1).any(dim=1).nonzero().squeeze(1).tolist() == [2, 5, 7]


@every_rule
def test_a_gradient_without_rows_changes_nothing(rule: str) -> None:
    table = new_table()
    none = torch.zeros(1, 0, dtype=torch.int64)
    table.grad = torch.sparse_coo_tensor(none, torch.zeros(0, DIM), (ROWS, DIM), check_invariants=True)
    RULES[rule](table).step()
    assert torch.equal(table.detach(), new_table().detach())


@every_rule
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_spoils_its_own_row_alone(rule: str, bad: float) -> None:
    tables = [new_table(), new_table()]
    for table, value in zip(tables, (bad, 1.0), strict=True):
        rows = torch.ones(3, DIM)
        rows[1, 0] = value
        table.grad = torch.sparse_coo_tensor([[2, 5, 7]], rows, (ROWS, DIM), check_invariants=True)
        RULES[rule](table).step()
    spoilt, good = (table.detach() for table in tables)
    assert not spoilt[5].isfinite().all()
    others = torch.arange(ROWS) != 5
    assert torch.equal(spoilt[others], good[others])


@every_rule
def test_gradients_of_several_parts_are_that_of_the_whole(rule: str) -> None:
    tables = [new_table(), new_table()]
    optimizers = [RULES[rule](table) for table in tables]
    for _ in range(3):
        for table, parts in zip(tables, ([[3, 1, 4, 1], [1, 5, 9]], [[3, 1, 4, 1, 1, 5, 9]]), strict=True):
            table.grad = None
            for ids in parts:
                torch.nn.functional.embedding(torch.tensor(ids), table, sparse=True).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(tables[0], tables[1])


@every_rule
def test_a_rule_refuses_a_dense_gradient(rule: str) -> None:
    table = new_table()
    table.grad = torch.ones(ROWS, DIM)
    with pytest.raises(ConfigError, match="embedding tables have dense gradients"):
        RULES[rule](table).step()
