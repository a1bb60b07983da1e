"""What is true of every model on a GPU: it scores as on the CPU, learns there, and makes the same steps where nothing is drawn.

These tests have never run: they were written where there is no GPU.
"""

from __future__ import annotations

import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.config.load import model_config_type
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.models import build, kind_of
from recsys_cli.models.model import Model
from recsys_cli.models.retrieval.model import RetrievalModel
from recsys_cli.registry import MODELS
from recsys_cli.training.ranks import Ranks
from recsys_cli.training.step import Step
from tests.contract.model_cases import (
    SCHEMA,
    SIZES,
    a_batch,
    a_model,
    closed_form,
    gradient_trained,
    names_of,
    some_known,
)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
THERE = "cuda"
UNDRAWN = sorted(set(gradient_trained()) - set(names_of(RetrievalModel)) - {"bert4rec"})
"""Models whose steps follow from the batch alone, without dropout: GPUs draw other numbers."""


def scores(model: Model, device: str) -> list[torch.Tensor]:
    """Return the scores of a batch's rows, and of the catalog where a model has such."""
    model.eval()
    with torch.inference_mode():
        found = [model.score(a_batch().to(device))]
        if model.scoring != "pairs":
            users, items = (torch.arange(SIZES[column], device=device) for column in ("user.id", "item"))
            found.append(model.scores(users, items))
    assert all(one.device.type == device for one in found)
    return [one.cpu() for one in found]


def losses(
    name: str, device: str, *, sizes: tuple[int, ...], precision: str = "fp32", **options: object
) -> list[float]:
    """Train for so many steps of so many rows; return the losses."""
    sparse = not kind_of(name).dense_gradients
    model = a_model(name, sparse=sparse, device=device, **options).train()
    step = Step(
        model, TrainConfig(learning_rate=0.01, sparse_embeddings=sparse, precision=precision, device=device), Ranks()
    )
    found = []
    for number, rows in enumerate(sizes):
        batch = a_batch(rows)
        if model.rows == "users":
            users = torch.arange(rows, dtype=torch.int32) % 27 + 3
            batch = Batch({"user.id": users}, {"label": torch.ones(rows)})
        found.append(float(step(batch.to(device), TrainingPosition(number, len(sizes), 1, []))))
    return found


@pytest.mark.parametrize("name", sorted(MODELS))
def test_weights_of_the_cpu_score_the_same_there(name: str) -> None:
    here, there = a_model(name), build(name, {}, SCHEMA).to(THERE)
    there.load_state_dict(here.state_dict())
    there.set_context(some_known(device=THERE))
    for found, expected in zip(scores(there, THERE), scores(here, "cpu"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", closed_form())
def test_what_is_fitted_there_scores_as_what_is_fitted_here(name: str) -> None:
    for found, expected in zip(scores(a_model(name, device=THERE), THERE), scores(a_model(name), "cpu"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", UNDRAWN)
def test_steps_are_the_same_there(name: str) -> None:
    fields = model_config_type(name).model_fields
    quiet = {option: 0.0 for option in ("dropout", "embedding_dropout") if option in fields}
    found, expected = (losses(name, device, sizes=(64, 1, 33), **quiet) for device in (THERE, "cpu"))
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", gradient_trained())
def test_a_batch_is_learned_there(name: str, precision: str) -> None:
    found = losses(name, THERE, sizes=(64,) * 60, precision=precision)
    assert sum(found[-5:]) < 0.95 * sum(found[:5])
