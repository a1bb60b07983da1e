"""What is true of a model whose loss is compiled: it learns what it learns without.

Two stand for all, because capturing the graph of one takes a quarter of a minute: one of rows, with crosses and batch
normalisation, and one that draws, looks features up, and compares rows.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.models import kind_of, require_gradient_trained
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.step import Step
from tests.contract.model_cases import a_batch, a_model

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of torch, while it compiles


def two_steps(name: str, *, compiled: bool) -> tuple[list[float], dict[str, torch.Tensor], float]:
    """Train for two steps of different sizes; return the losses, the weights, and the time that compiling took."""
    sparse = not kind_of(name).dense_gradients
    # A compiled model drops other elements.
    without_chance = {"dropout": 0.0, "embedding_dropout": 0.0} if name == "dcn-v2" else {}
    model = require_gradient_trained(a_model(name, sparse=sparse, **without_chance)).train()
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
