"""What is true of every model that several processes train together: they make the steps that one makes.

What a process draws for itself (masks, items to compare with, dropout of what is no ranking model) no other process knows, so here
nothing of it is drawn: with the draws given, losses and weights have to be the same for any number of processes. With its own
draws each has to learn. What a ranking model drops of a row is the same everywhere, so there is dropout in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import AdamW

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.config.load import model_config_type
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.features.schema import Schema
from recsys_cli.models import kind_of
from recsys_cli.models.model import Model
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.retrieval import two_tower
from recsys_cli.models.retrieval.model import RetrievalModel
from recsys_cli.models.retrieval.negative_sampling import ItemCatalog
from recsys_cli.training import optimizers
from recsys_cli.training.member import Member
from recsys_cli.training.ranks import Ranks, process_group
from recsys_cli.training.step import Step
from tests.contract.model_cases import OF_NUMBERS, SCHEMA, a_batch, a_model, gradient_trained, names_of
from tests.ranks import on_ranks

RANKS = 2
CASES = [(name, {}) for name in gradient_trained()] + [
    ("dcn-v2", {"structure": "parallel"}),
    ("mf", {"loss": "warp"}),
    ("mf", {"loss": "softmax"}),
    ("two-tower", {"hidden_dims": [8], "num_negatives": 0, "filter_false_negatives": True}),
]
OF_A_NUMBER = names_of(RankingModel)
"""Models that are also tried with a label that is a number."""
DRAWING = [*names_of(RetrievalModel), "bert4rec"]
"""Models in which processes draw something of their own, whatever their options are."""
BATCHES = (64, 1, 33)
"""Rows of the steps: of the second one process has none, and of the third the pieces differ."""
LINEAR = {"embedding_optimizer": "sgd", "embedding_learning_rate": 1.0}
"""Rows of tables move by what their gradients are, so that a wrong one shows."""
SCALE = (5_000.0, 300.0)
"""Mean and deviation of labels that are numbers."""
Trail = tuple[list[float], dict[str, Tensor]]
"""The losses of steps, and the weights after them."""


def without_chance(name: str) -> dict[str, Any]:
    """Options with which nothing is drawn but items."""
    fields = model_config_type(name).model_fields
    if issubclass(kind_of(name), RankingModel):  # what is dropped of a row is the same everywhere
        return {option: 0.3 for option in ("dropout", "embedding_dropout") if option in fields}
    given = {"dropout": 0.0, "embedding_dropout": 0.0, "last_share": 1 - 1e-12}  # the last item alone is masked
    return {option: value for option, value in given.items() if option in fields}


@contextmanager
def given_draws() -> Iterator[None]:
    """Let the items that are drawn follow from what they are drawn for; and let Adam make no step of what is rounding alone."""

    def sample(self: ItemCatalog, *shape: int) -> Tensor:
        return self.items[torch.arange(shape[-1]) % len(self)].expand(shape)

    def sample_for(self: ItemCatalog, users: Tensor, number: int) -> Tensor:
        return self.items[(users.unsqueeze(1) + torch.arange(number)) % len(self)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ItemCatalog, "sample", sample)
        patch.setattr(ItemCatalog, "sample_for", sample_for)
        patch.setattr(
            two_tower, "_MAX_ROWS", 24
        )  # so that rows are compared in parts, one of which is of both processes
        patch.setattr(optimizers, "AdamW", partial(AdamW, eps=1e-2))
        yield


def piece(model: Model, num_rows: int, seed: int, ranks: Ranks) -> Batch:
    """This process's rows of a step."""
    batch = a_batch(num_rows, seed=seed)
    if model.rows == "users":
        users = (torch.arange(num_rows) + seed) % 27 + 3
        batch = Batch({"user.id": users.int()}, {"label": torch.ones(num_rows)})
    if isinstance(model, RankingModel) and model.is_regression[0]:
        batch = Batch(batch.features, {"seconds": SCALE[0] + SCALE[1] * batch.features["age"].square()})
    bounds = list(pairwise(num_rows * rank // ranks.world_size for rank in range(ranks.world_size + 1)))
    return batch.span(*bounds[ranks.rank])


def steps(
    name: str,
    options: dict[str, Any],
    sizes: Sequence[int],
    ranks: Ranks,
    *,
    seeds: int = 100,
    schema: Schema = SCHEMA,
    **by_rows: Any,
) -> Trail:
    """Train a model for steps of so many rows."""
    sparse = not kind_of(name).dense_gradients
    model = a_model(name, schema=schema, sparse=sparse, torch_seed=ranks.rank, **options).train()
    if isinstance(model, RankingModel):
        model.set_scales({"seconds": SCALE})
    ranks.prepare(model)
    config = TrainConfig(
        learning_rate=0.01, precision="fp32", device="cpu", sparse_embeddings=sparse, **(by_rows if sparse else {})
    )
    step, losses = Step(model, config, ranks), []
    for number, size in enumerate(sizes):
        batch = piece(model, size, number % seeds, ranks)
        losses.append(float(step(batch, TrainingPosition(number, len(sizes), 1, []), rows=size)))
    return losses, model.state_dict()


def all_cases(ranks: Ranks) -> dict[str, Trail]:
    """Train every case without chance, and those that draw with chance as well."""
    with given_draws():
        found = {
            of_case(name, options): steps(name, {**without_chance(name), **options}, BATCHES, ranks, **LINEAR)
            for name, options in CASES
        }
        for name in OF_A_NUMBER:
            found[f"{name} of a number"] = of_a_number(name, ranks)
    return found | {f"{name} by chance": steps(name, {}, [64] * 40, ranks, seeds=1) for name in DRAWING}


def of_a_number(name: str, ranks: Ranks) -> Trail:
    return steps(name, without_chance(name), BATCHES, ranks, schema=OF_NUMBERS, **LINEAR)


def of_case(name: str, options: dict[str, Any]) -> str:
    return " ".join([name, *(f"{option}={value}" for option, value in options.items())])


def in_a_process() -> dict[str, Trail]:
    member = Member.from_environment()
    assert member is not None
    with process_group(member, torch.device("cpu")) as ranks:
        return all_cases(ranks)


@pytest.fixture(scope="module")
def on_each_rank() -> list[dict[str, Trail]]:
    """What the processes found: all models in one start of them, which takes longer than the steps."""
    found = on_ranks(RANKS, in_a_process)
    assert all(isinstance(one, dict) for one in found), found
    return found


@pytest.mark.parametrize(("name", "options"), CASES, ids=[of_case(*case) for case in CASES])
def test_processes_make_the_steps_of_one(name: str, options: dict[str, Any], on_each_rank: list[Any]) -> None:
    with given_draws():
        alone = steps(name, {**without_chance(name), **options}, BATCHES, Ranks(), **LINEAR)
    assert num_same(alone, [found[of_case(name, options)] for found in on_each_rank]) == RANKS


@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_processes_learn_a_number_as_one_does(name: str, on_each_rank: list[Any]) -> None:
    with given_draws():
        alone = of_a_number(name, Ranks())
    assert alone[1]["label_mean"].tolist() == [SCALE[0]]
    assert num_same(alone, [found[f"{name} of a number"] for found in on_each_rank]) == RANKS


def num_same(alone: Trail, elsewhere: Sequence[Trail]) -> int:
    """Compare losses and weights of one process with those of several; return the number of these."""
    losses, weights = alone
    for there, weights_there in elsewhere:
        assert there == pytest.approx(losses, rel=1e-4, abs=1e-6)
        for key, weight in weights.items():
            torch.testing.assert_close(
                weights_there[key], weight, rtol=1e-3, atol=1e-4, msg=lambda text, k=key: f"{k}: {text}"
            )
    return len(elsewhere)


@pytest.mark.parametrize("name", DRAWING)
def test_processes_that_sample_for_themselves_learn_one_model(name: str, on_each_rank: list[Any]) -> None:
    (losses, first), (_, second) = (found[f"{name} by chance"] for found in on_each_rank)
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])
    for key, weight in first.items():
        assert torch.equal(second[key], weight), key


def test_draws_of_a_process_are_its_own(on_each_rank: list[Any]) -> None:
    """Otherwise the above would say nothing."""
    alone, _ = steps("mf", {}, [64] * 3, Ranks(), seeds=1)
    assert on_each_rank[0]["mf by chance"][0][:3] != pytest.approx(alone, rel=1e-5)
