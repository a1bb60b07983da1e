"""A lookup spread over the batch: the same sums and gradients, whichever way they are computed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config import Placement
from recsys_cli.features.schema import Column, Kind, Role
from recsys_cli.models.embedding import Embeddings, Lookup, embed, table_options, tables

OFFSETS = torch.tensor([0, 2, 2, 5, 6])
PLACES = torch.tensor([0, 2, 1, 1, 1, 2])
WEIGHTS = torch.tensor([1.0, 0.5, 2.0, 0.0, -1.0, 3.0])


@pytest.fixture(params=["counts", "bag"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "bag":
        monkeypatch.setattr(tables, "_MAX_COUNTED", 0)


def rows() -> Tensor:
    return torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]], requires_grad=True)


@pytest.mark.parametrize(
    ("weights", "sums", "uses"),
    [
        (None, [[4.0, 40.0], [0.0, 0.0], [6.0, 60.0], [3.0, 30.0]], [1.0, 30.0, 1.0 + 40.0]),
        (WEIGHTS, [[2.5, 25.0], [0.0, 0.0], [2.0, 20.0], [9.0, 90.0]], [1.0, 10.0, 0.5 + 120.0]),
    ],
    ids=["counted", "weighted"],
)
def test_lists_are_summed_and_so_are_their_gradients(
    weights: Tensor | None, sums: list[list[float]], uses: list[float]
) -> None:
    used = rows()
    spread = Lookup(used, PLACES, OFFSETS, weights).spread()
    assert spread.tolist() == sums
    (spread * torch.tensor([[1.0], [5.0], [10.0], [40.0]])).sum().backward()
    assert used.grad is not None
    assert used.grad.tolist() == [[use, use] for use in uses]


def test_a_batch_whose_lists_are_all_empty_is_zero() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert Lookup(rows()[:0], none, torch.zeros(4, dtype=torch.int64)).spread().tolist() == [[0.0, 0.0]] * 3


def test_autocast_sums_in_full_precision() -> None:
    used = torch.full((1, 2), 1.0009765625)  # 1 + 2^-10, which bf16 does not have
    with torch.autocast("cpu", dtype=torch.bfloat16):
        spread = Lookup(used, torch.tensor([0, 0]), torch.tensor([0, 2])).spread()
    assert spread.tolist() == [[2.001953125, 2.001953125]]


def test_squares_are_those_of_the_spread_rows() -> None:
    for one in (Lookup(rows(), PLACES, OFFSETS, WEIGHTS), Lookup(rows(), PLACES)):
        assert torch.equal(one.squares(), one.spread().square().sum(1))


def test_tables_looked_up_like_others_give_what_they_give_alone() -> None:
    user, item = (
        Column(name=name, role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=9, vocabulary=name)
        for name in ("user", "item")
    )
    one, both = Embeddings([user], {"user": 4}), Embeddings([user, item], {"user": 2, "item": 3})
    batch = Batch({"user": torch.tensor([3, 8, 3]), "item": torch.tensor([4, 4, 0])}, {})
    alone, found = both.lookups(batch), both.lookups(batch, like=one.lookups(batch))
    assert list(found) == list(alone) == ["item", "user"]
    assert all(torch.equal(found[name].spread(), alone[name].spread()) for name in alone)


@pytest.mark.parametrize("placement", ["device", "host"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_padding_gets_no_gradient(sparse: bool, placement: Placement) -> None:
    """The id 0, as a single value and in a list, with other ids that get a gradient."""
    columns = [
        Column(
            name=name,
            role=Role.FEATURE,
            kind=Kind.CATEGORICAL,
            dtype="int32",
            cardinality=4,
            vocabulary="v",
            ragged=ragged,
        )
        for name, ragged in (("one", False), ("many", True))
    ]
    with table_options(sparse=sparse, placement=placement):
        tables = embed(columns, {"one": 2, "many": 2})
    ids = torch.tensor([0, 3, 0, 2], dtype=torch.int32)
    batch = Batch({"one": ids, "many": Ragged(ids, torch.tensor([0, 2, 4, 4, 4]))}, {})
    sum(found.sum() for found in tables(batch).values()).backward()
    for name in ("one", "many"):
        gradient = tables.table(name).grad.to_dense()
        assert gradient.tolist() == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
