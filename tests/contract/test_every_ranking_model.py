"""What is true of every model that tells how likely the labels of a row are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models.ranking.model import RankingModel
from tests.contract.model_cases import OF_NUMBERS, SCHEMA, a_batch, a_model, names_of, without_regularization

BY_HEART = [name for name in names_of(RankingModel) if name != "logistic"]
"""Those that look at features together: what each adds by itself does not tell 64 rows apart."""
CLICK = Column(name="click", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8")


@pytest.fixture(params=names_of(RankingModel))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def model(name: str, request: pytest.FixtureRequest) -> RankingModel:
    return a_model(name, sparse=request.param)


def test_loss_from_given_scores_is_the_loss(model: RankingModel) -> None:
    batch = a_batch()
    model.eval()
    assert torch.equal(model.loss(batch, scores=model.score(batch)), model.loss(batch))


def test_loss_is_a_mean_of_weighted_rows(model: RankingModel) -> None:
    batch = a_batch()
    weight = torch.arange(64.0) / 16
    model.eval()

    def loss(weight: torch.Tensor | None) -> torch.Tensor:
        return model.loss(replace(batch, weight=weight))

    torch.testing.assert_close(loss(torch.ones(64)), loss(None))
    torch.testing.assert_close(loss(weight * 2), loss(weight) * 2)
    torch.testing.assert_close(loss(weight) + loss(1 - weight), loss(None))
    assert loss(torch.zeros(64)) == 0


def test_elements_of_lists_count_by_their_weights(model: RankingModel) -> None:
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


@pytest.mark.parametrize("name", BY_HEART)
def test_one_batch_can_be_learned_by_heart(name: str) -> None:
    torch.manual_seed(0)
    model, batch = a_model(name, **without_regularization(name)), a_batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
    assert loss < 0.05


def test_lists_that_are_all_empty_are_taken(model: RankingModel) -> None:
    batch = a_batch(8)
    empty = Ragged(torch.zeros(0, dtype=torch.int32), torch.zeros(9, dtype=torch.int64))
    loss = model.loss(Batch({**batch.features, "keys": empty}, batch.labels))
    loss.backward()
    assert torch.isfinite(loss)


def with_clicks(batch: Batch) -> Batch:
    """The batch with a second label: the opposite of the first."""
    return replace(batch, labels={**batch.labels, "click": 1 - batch.labels["label"]})


@pytest.mark.parametrize("name", BY_HEART)
def test_several_labels_are_learned_together(name: str) -> None:
    torch.manual_seed(0)
    schema, batch = Schema(columns=(*SCHEMA.columns, CLICK)), with_clicks(a_batch())
    model = a_model(name, schema=schema, **without_regularization(name))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
    logits = model.eval().logits(batch)
    assert torch.equal(model.score(batch), logits[:, 0])
    right = (logits > 0).float() == torch.stack([batch.labels["label"], batch.labels["click"]], dim=1)
    assert right.float().mean(dim=0).min() > 0.95


def test_labels_count_by_their_weights(name: str) -> None:
    batch = with_clicks(a_batch())

    def loss(**weights: float) -> torch.Tensor:
        model = a_model(name, schema=Schema(columns=(*SCHEMA.columns, CLICK)), label_weights=weights)
        return model.eval().loss(batch)

    clicks = loss(click=2.0) - loss()
    torch.testing.assert_close(loss(click=3.0), loss() + 2 * clicks)
    assert clicks > 0
    with pytest.raises(ConfigError, match="label_weights: unknown label buy; the labels are label, click"):
        loss(buy=1.0)


def test_a_label_that_is_a_number_is_told_in_its_units(name: str) -> None:
    """The model starts at the mean, however far from 0 it is, and its loss is the same in other units."""
    batch = a_batch()
    seconds = 5_000 + 300 * torch.randn(64, generator=torch.Generator().manual_seed(1))
    found = []
    for unit in (1.0, 60.0):
        model = a_model(name, schema=OF_NUMBERS, **without_regularization(name)).eval()
        model.set_scales({"seconds": (5_000 / unit, 300 / unit)})
        rows = Batch(batch.features, {"seconds": seconds / unit})
        scores = model.score(rows)
        torch.testing.assert_close(model.loss(rows, scores=scores), model.loss(rows), rtol=1e-4, atol=1e-5)
        found.append((scores * unit, model.loss(rows)))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-2)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)
    assert 4_000 < found[0][0].mean() < 6_000
    assert 0.08 < found[0][1] < 0.5
