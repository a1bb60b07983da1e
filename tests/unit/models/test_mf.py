from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.mf.model import Model
from recsys_cli.models.model import TrainingContext
from tests.planted import SCHEMA, found_by, learn, planted, popularity


def two_items(**options: object) -> Model:
    """A model of items 3 and 4; user 3 likes item 3 and user 4 item 4, so the negative is the other one."""
    torch.manual_seed(0)
    model = build("mf", {"embedding_dim": 2, "loss": "bpr", "regularization": 0, **options}, SCHEMA)
    assert isinstance(model, Model)
    with torch.no_grad():
        model.embeddings.table("user")[3:5] = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        model.embeddings.table("item")[3:5] = torch.tensor([[0.5, 0.5, 0.25], [1.0, -1.0, 0.0]])
    both = np.array([3, 4], dtype=np.int32)
    model.set_context(TrainingContext(lambda: Interactions(both, both, np.ones(2, np.float32)), dict))
    return model


def rows(users: list[int], items: list[int], labels: list[float], weight: list[float] | None = None) -> Batch:
    features = {"user": torch.tensor(users), "item": torch.tensor(items)}
    return Batch(features, {"label": torch.tensor(labels)}, None if weight is None else torch.tensor(weight))


SCORES = {(3, 3): 0.75, (3, 4): 1.0, (4, 3): 1.25, (4, 4): -2.0}


def test_the_bias_of_an_item_is_added_to_the_product() -> None:
    model = two_items()
    batch = rows([3, 3, 4, 4], [3, 4, 3, 4], [0, 0, 0, 0])
    torch.testing.assert_close(model.score(batch), torch.tensor(list(SCORES.values())))
    torch.testing.assert_close(model.user_vectors(torch.tensor([4])), torch.tensor([[0.0, 2.0, 1.0]]))
    torch.testing.assert_close(model.item_vectors(torch.tensor([3])), torch.tensor([[0.5, 0.5, 0.25]]))


@pytest.mark.parametrize(
    ("loss", "first", "second"),
    [
        ("bpr", math.log(1 + math.exp(0.25)), math.log(1 + math.exp(3.25))),
        ("warp", 1 + 0.25, 1 + 3.25),  # the first of two items: rank 1, weight 1
        # Of 512 drawn items each is about half, and those that are liked do not count: the figure is that of the seed's draw.
        ("softmax", None, None),
    ],
)
def test_loss_is_the_mean_over_all_rows_of_what_the_positives_weigh(
    loss: str, first: float | None, second: float | None
) -> None:
    model = two_items(loss=loss)
    if first is None or second is None:
        torch.manual_seed(1)
        drawn = model.catalog.sample(512)
        others = torch.tensor([float((drawn == 4).sum()), float((drawn == 3).sum())])
        others = others * 2 / 512  # how often each is to be expected
        first, second = (torch.tensor([0.25, 3.25]).exp() * others).add(1).log().tolist()
    torch.manual_seed(1)
    # A label of 0.9 is a positive of that much; the weight of a row that is none does not matter.
    batch = rows([3, 4, 3, 4, 4], [3, 4, 4, 3, 4], [1, 0.9, 0, 0.5, 1], [1, 2, 100, 100, 0])
    torch.testing.assert_close(model.loss(batch), torch.tensor((first + 0.9 * 2 * second) / 5))


def test_rows_without_a_positive_label_teach_nothing() -> None:
    model = two_items()
    loss = model.loss(rows([3, 4], [4, 3], [0, 0]))
    loss.backward()
    assert loss == 0
    assert not any(parameter.grad.to_dense().any() for parameter in model.parameters())


def test_vectors_cost_their_squared_lengths_in_training_alone() -> None:
    batch = rows([3], [3], [1])
    lengths = 1.0 + (0.25 + 0.25 + 0.0625) + 2.0  # user 3, item 3, and item 4, which is drawn
    for options in ({}, {"num_negatives": 7}, {"loss": "warp"}):
        added = two_items(regularization=0.1, **options).loss(batch) - two_items(**options).loss(batch)
        assert two_items(regularization=0.1, **options).eval().loss(batch) == two_items(**options).loss(batch)
        torch.testing.assert_close(added, torch.tensor(0.1 * lengths))


def test_positives_are_drawn_where_they_are_not_avoided() -> None:
    torch.manual_seed(0)
    batch = rows([3] * 1_000, [3] * 1_000, [1.0] * 1_000)
    mean = two_items(filter_false_negatives=False).loss(batch)
    expected = (math.log(2) + math.log(1 + math.exp(0.25))) / 2  # half of the time it is compared with itself
    torch.testing.assert_close(mean, torch.tensor(expected), atol=0.01, rtol=0)


@pytest.mark.parametrize("loss", ["bpr", "warp", "softmax"])
def test_planted_groups_are_found(loss: str) -> None:
    torch.manual_seed(0)
    data = planted()
    model = learn(build("mf", {"loss": loss, "embedding_dim": 16}, SCHEMA), data)
    assert popularity(data) < 0.25
    assert found_by(model, data) > 0.5


@pytest.mark.parametrize(("loss", "expected"), [("bpr", 0.002), ("warp", 0.05), ("softmax", 0.05)])
def test_the_penalty_of_the_vectors_goes_by_the_loss_unless_it_is_given(loss: str, expected: float) -> None:
    assert two_items(loss=loss, regularization=None).objective.regularization == expected
    assert two_items(loss=loss, regularization=0.0).objective.regularization == 0.0
