"""What is true of every model of the registry; a new one is tested the day its line is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.config.load import model_config
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models import build
from recsys_cli.models.model import LossOption, Model, TrainingContext
from recsys_cli.models.weights import PREFIX, load_weights
from recsys_cli.registry import MODELS
from recsys_cli.training.trainer import train_part
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


def test_three_classes_at_most_are_between_a_module_and_a_model(model: Model) -> None:
    ours = [one for one in type(model).__mro__ if one.__module__.startswith("recsys_cli.")]
    assert len(ours[1:]) <= 3


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


WEIGHTED = Schema(
    columns=(*SCHEMA.columns, Column(name="weight", role=Role.WEIGHT, kind=Kind.NUMERIC, dtype="float32"))
)
ONE_EPOCH = {"epochs": 1, "batch_size": 32, "device": "cpu", "precision": "fp32"}
LOSS_OPTIONS: list[tuple[LossOption, dict[str, float]]] = [
    ("features.weight", {}),
    ("train.positive_weight", {"positive_weight": 8.0}),
    ("train.label_smoothing", {"label_smoothing": 0.4}),
]
OPTIONS_OF_MODELS = [
    *((name, {}) for name in sorted(MODELS)),
    ("two-stage", {"candidates": [{"name": "sasrec", "train": ONE_EPOCH}, {"name": "ease"}], "ranker": None}),
    ("two-stage", {"candidates": [{"name": "mf", "train": ONE_EPOCH}], "ranker": None}),
]


def trained(name: str, options: dict[str, object], *, rows_doubled: int = 0, **train: float) -> dict[str, torch.Tensor]:
    """Return the weights after an epoch, with the weights of the first rows doubled."""
    known = some_known()
    weights = torch.ones(len(known.interactions().labels))
    weights[:rows_doubled] = 2
    interactions = replace(known.interactions(), weights=weights.numpy())
    ids = {"user.id": torch.from_numpy(interactions.user_idx), "item": torch.from_numpy(interactions.item_idx)}
    rows = Batch(
        {**a_batch(len(weights)).features, **known.join(ids)}, {"label": torch.from_numpy(interactions.labels)}, weights
    )
    context = TrainingContext(lambda: interactions, known.join, lambda: (rows,), train_part)
    torch.manual_seed(0)
    model = build(name, options, WEIGHTED)
    if model.rows == "all":
        model.fit(context)
    else:
        train_part(model, TrainConfig(**ONE_EPOCH, **train), context, WEIGHTED)
    return model.state_dict()


@pytest.mark.parametrize(("option", "train"), LOSS_OPTIONS, ids=[option for option, _ in LOSS_OPTIONS])
@pytest.mark.parametrize(("name", "options"), OPTIONS_OF_MODELS, ids=str)
def test_an_option_of_the_loss_acts_or_is_announced(
    name: str, options: dict[str, object], option: LossOption, train: dict[str, float]
) -> None:
    model = build(name, options, WEIGHTED)
    plain, other = trained(name, options), trained(name, options, rows_doubled=0 if train else 150, **train)
    acts = any(not torch.equal(plain[key], other[key]) for key in plain)
    assert acts == (option in model.loss_options)
    announced = model.unused_options(TrainConfig(positive_weight=8.0, label_smoothing=0.4), WEIGHTED)
    assert acts != (option in announced)
