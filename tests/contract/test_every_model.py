"""What is true of every model of the registry; a new one is tested the day its line is written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from recsys_cli.batch import Batch
from recsys_cli.config.load import model_config
from recsys_cli.features.schema import Schema
from recsys_cli.models import build
from recsys_cli.models.model import Model
from recsys_cli.models.weights import PREFIX, load_weights
from recsys_cli.registry import MODELS
from tests.contract.model_cases import SCHEMA, a_batch, a_model, rows_of, some_known


@pytest.fixture(params=sorted(MODELS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def model(name: str) -> Model:
    return a_model(name)


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


def test_traits_name_the_methods_that_are_implemented(model: Model) -> None:
    def own(name: str) -> bool:
        return getattr(type(model), name) is not getattr(Model, name)

    assert own("loss") == (model.rows != "all")
    assert own("fit") == (model.rows == "all")
    assert own("user_vectors") == own("item_vectors") == (model.scoring == "dot_product")
    assert own("scores") == (model.scoring == "catalog")


def test_two_classes_at_most_are_between_a_module_and_a_model(model: Model) -> None:
    ours = [one for one in type(model).__mro__ if one.__module__.startswith("recsys_cli.")]
    assert len(ours[1:]) <= 2


def test_weights_come_back_from_a_file(model: Model, name: str, tmp_path: Path) -> None:
    batch = a_batch()
    if model.rows == "interactions":
        model.loss(batch)  # moves the statistics of normalisation layers away from where they begin
    save_file({PREFIX + key: tensor for key, tensor in model.state_dict().items()}, tmp_path / "best.safetensors")
    torch.manual_seed(1)
    other = build(name, {}, SCHEMA)
    load_weights(other, tmp_path / "best.safetensors")
    other.set_context(some_known())
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
    other.set_context(some_known())
    turned = Batch(dict(reversed(batch.features.items())), batch.labels)
    assert torch.equal(other.eval().score(turned), model.eval().score(batch))


def test_same_seed_is_the_same_model(name: str) -> None:
    first, second = a_model(name).state_dict(), a_model(name).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_another_seed_is_another_model_unless_it_is_deterministic(name: str) -> None:
    """A bench makes one run of a deterministic model, and counts it for all seeds."""
    models = [a_model(name, torch_seed=seed).eval() for seed in (0, 1)]
    first, second = (model.state_dict() for model in models)
    same = all(first[key].shape == second[key].shape and torch.equal(first[key], second[key]) for key in first)
    assert same == models[0].deterministic
    if models[0].deterministic:
        assert models[0].rows == "all"  # the order of steps is drawn
        assert torch.equal(*(model.score(a_batch()) for model in models))
