from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.optim import AdamW

from recsys_cli.config import TrainConfig
from recsys_cli.training import row_optimizers
from recsys_cli.training.optimizers import build, split
from recsys_cli.training.row_optimizers import RowAdagrad, RowAdam, RowSGD, of_rows, rows_of


class Net(nn.Module):
    """A model with tables in the middle, so that a choice by position would fail."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.table = nn.Embedding(10, 4)
        self.bag = nn.EmbeddingBag(6, 4)
        self.after = nn.Linear(4, 1)


def test_tables_are_told_by_what_they_are() -> None:
    net = Net()
    tables, rest = split(net)
    assert [id(table) for table in tables] == [id(net.table.weight), id(net.bag.weight)]
    assert len(rest) == 4


def test_dense_is_one_adam_with_a_rate_and_a_decay_for_each_kind() -> None:
    net = Net()
    config = TrainConfig(learning_rate=0.1, embedding_learning_rate=0.2, weight_decay=0.3, embedding_weight_decay=0.4)
    (optimizer,) = build(net, config)
    assert isinstance(optimizer, AdamW)
    rates = {id(p): (g["lr"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]}
    assert rates[id(net.table.weight)] == (0.2, 0.4)
    assert rates[id(net.after.bias)] == (0.1, 0.3)
    assert len(rates) == 6


@pytest.mark.parametrize(("name", "kind"), [("adam", RowAdam), ("adagrad", RowAdagrad), ("sgd", RowSGD)])
@pytest.mark.parametrize("rate", [0.2, None])
def test_sparse_is_the_optimizer_of_rows_that_is_named_beside_an_adamw(
    name: Any, kind: type, rate: float | None
) -> None:
    given = {} if rate is None else {"embedding_learning_rate": rate}
    config = TrainConfig(sparse_embeddings=True, embedding_optimizer=name, learning_rate=0.1, weight_decay=0.3, **given)
    rows, dense = build(Net(), config)
    assert type(rows) is kind
    assert isinstance(dense, AdamW)
    assert [(len(g["params"]), g["lr"]) for g in rows.param_groups] == [(2, rate or 0.1)]
    assert [(len(g["params"]), g["lr"], g["weight_decay"]) for g in dense.param_groups] == [(4, 0.1, 0.3)]


@pytest.mark.parametrize("name", ["adam", "adagrad", "sgd"])
def test_optimizers_of_rows_have_no_decay_and_need_sparse(name: Any) -> None:
    with pytest.raises(ValidationError, match="embedding_weight_decay is not available with sparse_embeddings: true"):
        TrainConfig(sparse_embeddings=True, embedding_optimizer=name, embedding_weight_decay=0.1)
    if name != "adam":
        with pytest.raises(ValidationError, match=f"embedding_optimizer: {name} .* set sparse_embeddings: true"):
            TrainConfig(embedding_optimizer=name)


def test_adamw_without_decay_is_adam() -> None:
    nets = [Net(), Net()]
    nets[1].load_state_dict(nets[0].state_dict())
    ours, theirs = build(nets[0], TrainConfig(learning_rate=0.01))[0], torch.optim.Adam(nets[1].parameters(), lr=0.01)
    for _ in range(5):
        for net, optimizer in zip(nets, (ours, theirs), strict=True):
            optimizer.zero_grad()
            net.after(net.before(net.table(torch.arange(10)))).square().sum().backward()
            optimizer.step()
    for mine, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(mine, other)


def test_a_model_without_tables_has_one_optimizer() -> None:
    assert [type(optimizer) for optimizer in build(nn.Linear(2, 1), TrainConfig(sparse_embeddings=True))] == [
        row_optimizers.AdamW
    ]


def test_steps_do_not_load_the_compiler() -> None:
    program = """
import sys
import torch
from torch import nn
from recsys_cli.config import TrainConfig
from recsys_cli.training.optimizers import build
from recsys_cli.training.step import MultiOptimizer

net = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1))
together = MultiOptimizer(build(net, TrainConfig(sparse_embeddings=True, embedding_optimizer="adam")))
before = [parameter.clone() for parameter in net.parameters()]
for _ in range(2):
    together.zero_grad()
    net(torch.arange(3)).sum().backward()
    together.step()
    together.load_state_dict(together.state_dict())
print([not torch.equal(*pair) for pair in zip(before, net.parameters())], "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[True, True, True] False"


def test_steps_are_those_of_torch() -> None:
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    (mine,) = build(ours, TrainConfig(learning_rate=0.1, weight_decay=0.3))
    other = AdamW(theirs.parameters(), lr=0.1, weight_decay=0.3, fused=True)
    for _ in range(3):
        for net, optimizer in ((ours, mine), (theirs, other)):
            optimizer.zero_grad()
            net(torch.ones(4, 3)).square().sum().backward()
            optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(ours.parameters(), theirs.parameters(), strict=True))


def held(ids: list[int], rows: list[list[float]]) -> torch.Tensor:
    table = torch.zeros(10, 2, requires_grad=True)
    table.grad = torch.sparse_coo_tensor([ids], torch.tensor(rows), (10, 2), check_invariants=True)
    return table


def test_distinct_rows_are_given_as_they_are() -> None:
    table = held([1, 4], [[1.0, 2.0], [3.0, 4.0]])
    before = table.grad
    ids, rows = rows_of(table)
    assert table.grad is before
    assert ids.tolist() == [1, 4]
    rows.mul_(2)
    assert table.grad.to_dense()[[1, 4]].tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_rows_of_the_same_id_are_added_up_once_for_all_who_ask() -> None:
    table = held([4, 1, 4], [[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]])
    ids, rows = rows_of(table)
    assert (ids.tolist(), rows.tolist()) == ([1, 4], [[3.0, 4.0], [11.0, 22.0]])
    assert rows_of(table)[1].data_ptr() == rows.data_ptr()


def test_ids_in_another_order_are_sorted() -> None:
    ids, rows = rows_of(held([4, 1], [[1.0, 1.0], [2.0, 2.0]]))
    assert (ids.tolist(), rows.tolist()) == ([1, 4], [[2.0, 2.0], [1.0, 1.0]])


def test_of_rows_is_the_tensor_with_those_rows() -> None:
    made = of_rows(torch.tensor([0, 3]), torch.ones(2, 5), torch.Size((4, 5)))
    assert made.is_coalesced()
    assert made.to_dense().sum(1).tolist() == [5.0, 0.0, 0.0, 5.0]
