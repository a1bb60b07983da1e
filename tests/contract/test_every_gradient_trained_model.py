"""What is true of every model that learns step by step."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.errors import ConfigError
from recsys_cli.models import kind_of
from recsys_cli.models.model import Model
from recsys_cli.registry import MODELS, load
from recsys_cli.training.ranks import Ranks
from recsys_cli.training.step import Step
from tests.contract.model_cases import a_batch, a_model, gradient_trained

KINDS = {name: load(MODELS[name].model) for name in gradient_trained()}
BUILDS = [
    (name, sparse) for name, kind in KINDS.items() for sparse in (False, True) if not (sparse and kind.dense_gradients)
]
"""Each model with the gradients that its tables can have."""


@pytest.fixture(params=BUILDS, ids=[f"{name}-{'sparse' if sparse else 'dense'}" for name, sparse in BUILDS])
def built(request: pytest.FixtureRequest) -> tuple[str, bool]:
    return request.param


@pytest.fixture
def model(built: tuple[str, bool]) -> Model:
    name, sparse = built
    return a_model(name, sparse=sparse)


def batch_of(model: Model, num_rows: int = 64) -> Batch:
    """A batch to train on: of interactions, or of users."""
    if model.rows == "interactions":
        return a_batch(num_rows)
    users = torch.arange(num_rows, dtype=torch.int32) % 27 + 3
    return Batch({"user.id": users}, {"label": torch.ones(num_rows)})


@pytest.mark.parametrize("num_rows", [1, 2, 257])
def test_loss_is_a_finite_scalar_for_any_batch_size(model: Model, num_rows: int) -> None:
    loss = model.loss(batch_of(model, num_rows))
    assert loss.shape == ()
    assert torch.isfinite(loss)


def test_loss_is_float32_under_autocast(model: Model) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.loss(batch_of(model))
    assert loss.dtype == torch.float32
    loss.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


def test_every_parameter_gets_a_gradient(model: Model) -> None:
    model.loss(batch_of(model)).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.count_nonzero(parameter.grad.to_dense()) > 0, parameter_name


def test_tables_have_the_gradients_that_were_asked_for(model: Model, built: tuple[str, bool]) -> None:
    model.loss(batch_of(model)).backward()
    tables = [module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    assert tables
    assert all(table.grad.is_sparse == built[1] for table in tables)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.dense_gradients])
def test_sparse_gradients_are_refused_where_every_step_changes_every_row(name: str) -> None:
    with pytest.raises(ConfigError, match="gradients of its tables are dense"):
        a_model(name, sparse=True)


def test_padding_is_zero_and_gets_no_gradient(model: Model) -> None:
    model.loss(batch_of(model)).backward()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            assert not module.weight[0].any()
            assert not module.weight.grad.to_dense()[0].any()


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_is_learned(name: str) -> None:
    model = a_model(name)
    batch = batch_of(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        torch.manual_seed(0)
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of torch, while it compiles


def two_steps(name: str, *, compiled: bool) -> tuple[list[float], dict[str, torch.Tensor], float]:
    """Train for two steps of different sizes; return the losses, the weights, and the time that compiling took."""
    sparse = not kind_of(name).dense_gradients
    # A compiled model drops other elements.
    without_chance = {"dropout": 0.0, "embedding_dropout": 0.0} if name == "dcn-v2" else {}
    model = a_model(name, sparse=sparse, **without_chance).train()
    config = TrainConfig(
        learning_rate=0.001, precision="fp32", device="cpu", sparse_embeddings=sparse, compile=compiled
    )
    step, losses = Step(model, config, Ranks()), []
    for number, rows in enumerate((64, 33)):
        batch = a_batch(rows, seed=number)
        losses.append(float(step(batch, TrainingPosition(number, 2, 1, []))))
    return losses, model.state_dict(), 0.0 if step.compiled is None else step.compiled.seconds


@pytest.mark.parametrize("name", ["dcn-v2", "two-tower"])
def test_a_compiled_loss_makes_the_same_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The graph is captured, forward and backward, as for machine code, which would take many times as long to make.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    plain, weights, _ = two_steps(name, compiled=False)
    found, weights_found, seconds = two_steps(name, compiled=True)
    assert seconds > 0
    assert found == pytest.approx(plain, rel=1e-4)
    for key, weight in weights.items():
        torch.testing.assert_close(weights_found[key], weight, rtol=1e-3, atol=1e-4)
