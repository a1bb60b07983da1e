"""What is true of every model of the registry; a new one is tested the day its line is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config.load import model_config
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models import build
from recsys_cli.models.model import Model
from recsys_cli.models.weights import PREFIX, load_weights
from recsys_cli.registry import MODELS

SIZES = {"user.id": 30, "item": 20, "keys": 8}
SCHEMA = Schema(
    columns=(
        Column(name="user.id", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=30, vocabulary="u"),
        Column(name="item", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=20, vocabulary="i"),
        Column(
            name="keys", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=8, vocabulary="k", ragged=True
        ),
        Column(name="age", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32"),
        Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
        Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64"),
    )
)  # fmt: skip


def a_batch(num_rows: int = 64, *, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 4, (num_rows,), generator=draw)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    ids = {n: torch.randint(0, SIZES[n], (num_rows,), generator=draw, dtype=torch.int32) for n in ("user.id", "item")}
    values = torch.randint(0, SIZES["keys"], (int(offsets[-1]),), generator=draw, dtype=torch.int32)
    features = {**ids, "keys": Ragged(values, offsets), "age": torch.randn(num_rows, generator=draw)}
    return Batch(features, {"label": torch.randint(0, 2, (num_rows,), generator=draw).float()})


def rows_of(batch: Batch, rows: list[int]) -> Batch:
    """Some rows of a batch, in the order asked for."""
    features = {}
    for name, feature in batch.features.items():
        if isinstance(feature, Ragged):
            lists = [feature.values[feature.offsets[row] : feature.offsets[row + 1]] for row in rows]
            offsets = torch.tensor([0, *[len(one) for one in lists]]).cumsum(0)
            features[name] = Ragged(torch.cat([feature.values[:0], *lists]), offsets)
        else:
            features[name] = feature[rows]
    return Batch(features, {name: label[rows] for name, label in batch.labels.items()})


@pytest.fixture(params=sorted(MODELS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def sparse(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def model(name: str, sparse: bool) -> Model:
    torch.manual_seed(0)
    return build(name, {}, SCHEMA, sparse=sparse)


def test_config_comes_back_from_json(name: str) -> None:
    config = model_config(name, {})
    assert type(config).model_validate_json(config.model_dump_json()) == config


def test_scores_are_one_float32_logit_a_row(model: Model) -> None:
    scores = model.eval().score(a_batch(17))
    assert scores.shape == (17,)
    assert scores.dtype == torch.float32


def test_scores_need_no_labels(model: Model) -> None:
    batch = a_batch()
    model.eval()
    assert torch.equal(model.score(Batch(batch.features, {})), model.score(batch))


@pytest.mark.parametrize("num_rows", [1, 2, 257])
def test_loss_is_a_finite_scalar_for_any_batch_size(model: Model, num_rows: int) -> None:
    loss = model.loss(a_batch(num_rows))
    assert loss.shape == ()
    assert torch.isfinite(loss)


def test_loss_from_given_scores_is_the_loss(model: Model) -> None:
    batch = a_batch()
    model.eval()
    assert torch.equal(model.loss(batch, scores=model.score(batch)), model.loss(batch))


def test_loss_is_a_mean_of_weighted_rows(model: Model) -> None:
    batch = a_batch()
    weight = torch.arange(64.0) / 16
    model.eval()

    def loss(weight: torch.Tensor | None) -> torch.Tensor:
        return model.loss(replace(batch, weight=weight))

    torch.testing.assert_close(loss(torch.ones(64)), loss(None))
    torch.testing.assert_close(loss(weight * 2), loss(weight) * 2)
    torch.testing.assert_close(loss(weight) + loss(1 - weight), loss(None))
    assert loss(torch.zeros(64)) == 0


def test_elements_of_lists_count_by_their_weights(model: Model) -> None:
    batch = a_batch()
    keys = batch.features["keys"]
    assert isinstance(keys, Ragged)

    def scores(lists: Ragged) -> torch.Tensor:
        return model.score(replace(batch, features={**batch.features, "keys": lists}))

    model.eval()
    with torch.no_grad():
        for module in model.modules():  # larger than they begin, so that a difference would show
            if isinstance(module, torch.nn.Embedding):
                module.weight[1:].normal_()
    plain, ones = scores(keys), torch.ones(len(keys.values))
    torch.testing.assert_close(scores(replace(keys, weights=ones)), plain)
    ends = keys.offsets[1:][keys.offsets.diff() > 0] - 1
    without_last = keys.values.clone()
    without_last[ends] = 0  # padding, which adds nothing
    lightened = ones.index_fill(0, ends, 0.0)
    torch.testing.assert_close(scores(replace(keys, weights=lightened)), scores(replace(keys, values=without_last)))
    assert not torch.allclose(scores(replace(keys, weights=lightened)), plain)


def test_loss_is_float32_under_autocast(model: Model) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.loss(a_batch())
    assert loss.dtype == torch.float32
    loss.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


def test_every_parameter_gets_a_gradient(model: Model) -> None:
    model.loss(a_batch()).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.count_nonzero(parameter.grad.to_dense()) > 0, parameter_name


def test_tables_have_the_gradients_that_were_asked_for(model: Model, sparse: bool) -> None:
    model.loss(a_batch()).backward()
    tables = [module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    assert tables
    assert all(table.grad.is_sparse == sparse for table in tables)


def test_padding_is_zero_and_gets_no_gradient(model: Model) -> None:
    batch = a_batch()
    assert any(0 in (f.values if isinstance(f, Ragged) else f) for f in batch.features.values())
    model.loss(batch).backward()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            assert not module.weight[0].any()
            assert not module.weight.grad.to_dense()[0].any()


def test_one_batch_can_be_learned_by_heart(name: str) -> None:
    torch.manual_seed(0)
    model, batch = build(name, {}, SCHEMA), a_batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
    assert loss < 0.05


def test_weights_come_back_from_a_file(model: Model, name: str, tmp_path: Path) -> None:
    batch = a_batch()
    model.loss(batch)  # moves the statistics of normalisation layers away from where they begin
    save_file({PREFIX + key: tensor for key, tensor in model.state_dict().items()}, tmp_path / "best.safetensors")
    torch.manual_seed(1)
    other = build(name, {}, SCHEMA)
    load_weights(other, tmp_path / "best.safetensors")
    assert torch.equal(other.eval().score(batch), model.eval().score(batch))


def test_a_row_scores_the_same_in_any_company(model: Model) -> None:
    batch = a_batch()
    model.eval()
    order = torch.randperm(64, generator=torch.Generator().manual_seed(3)).tolist()
    scores = model.score(batch)
    torch.testing.assert_close(model.score(rows_of(batch, order)), scores[order])
    torch.testing.assert_close(model.score(rows_of(batch, [5])), scores[5:6])


def test_columns_are_found_by_name_not_by_position(model: Model, name: str) -> None:
    batch = a_batch()
    other = build(name, {}, Schema(columns=SCHEMA.columns[::-1]))
    other.load_state_dict(model.state_dict())
    turned = Batch(dict(reversed(batch.features.items())), batch.labels)
    assert torch.equal(other.eval().score(turned), model.eval().score(batch))


def test_lists_that_are_all_empty_are_taken(model: Model) -> None:
    batch = a_batch(8)
    empty = Ragged(torch.zeros(0, dtype=torch.int32), torch.zeros(9, dtype=torch.int64))
    loss = model.loss(Batch({**batch.features, "keys": empty}, batch.labels))
    loss.backward()
    assert torch.isfinite(loss)


def test_same_seed_is_the_same_model(name: str) -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(7)
        states.append(build(name, {}, SCHEMA).state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
