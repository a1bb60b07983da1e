"""A model that is asked directly: the best items as an evaluation ranks them, and the nearest ones by direction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.evaluation.recommend import RecommendingModel, ScoredItem
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.workspace import PreparedData

MakePrepared = Callable[..., PreparedData]


class Compass(Model):
    """Items 3, 4, 5 and so on point 0, 10, 20 and so on degrees away from north and are as long as their id; users north."""

    scoring = "dot_product"
    begun = 0

    def set_context(self, context: TrainingContext) -> None:
        self.begun = len(context.interactions())

    def user_vectors(self, users: Tensor) -> Tensor:
        return torch.tensor([1.0, 0.0]).expand(len(users), 2)

    def item_vectors(self, items: Tensor) -> Tensor:
        angles = torch.deg2rad((items - 3) * 10.0)
        return torch.stack([angles.cos(), angles.sin()], dim=1) * items.unsqueeze(1)

    def score(self, batch: Batch) -> Tensor:
        raise NotImplementedError


class Same(Model):
    """Likes all pairs the same."""

    def score(self, batch: Batch) -> Tensor:
        return torch.zeros(batch.num_rows)


def counts(*items: int) -> np.ndarray:
    """Give how many rows of train each item has, where these were met."""
    return np.bincount(items, minlength=40)


def test_recommendations_are_the_best_of_train_that_were_not_seen(make_prepared: MakePrepared) -> None:
    model = Compass().eval()
    data = make_prepared()
    advisor = RecommendingModel(model, data, earlier=("train",), batch_size=100)

    found = advisor.recommend(5, counts=counts(3, 4, 5, 8, 20), seen={4}, k=3)

    assert model.begun == data.rows("train")
    assert advisor.why_not is None
    assert [one.item_idx for one in found] == [8, 5, 3]
    assert found[0].score == pytest.approx(8 * np.cos(np.deg2rad(50)), abs=1e-5)


class FoldedIn(Compass):
    """The same, of nobody but those whose history it is told."""

    folds_in = True


@pytest.mark.parametrize(("kind", "rows"), [(FoldedIn, 2), (Compass, 600)])
def test_fold_in_context_has_only_the_requested_user(
    make_prepared: MakePrepared, kind: type[Compass], rows: int
) -> None:
    model, ids = kind().eval(), np.array([5, 5], np.int32)
    own = Interactions(ids, ids, np.ones(2, np.float32))
    RecommendingModel(model, make_prepared(rows=600), earlier=("train",), batch_size=100, history=own)
    assert model.begun == rows


def test_fold_in_context_without_history_has_all_users(make_prepared: MakePrepared) -> None:
    model, nothing = FoldedIn().eval(), np.empty(0, np.int32)
    own = Interactions(nothing, nothing, np.empty(0, np.float32))
    data = make_prepared()
    RecommendingModel(model, data, earlier=("train",), batch_size=100, history=own)
    assert model.begun == data.rows("train")


def test_equal_scores_are_ordered_as_in_an_evaluation(make_prepared: MakePrepared) -> None:
    advisor = RecommendingModel(Same().eval(), make_prepared(), earlier=("train",), batch_size=7)

    found = advisor.recommend(5, counts=counts(3, 9, 9, 9, 4, 5, 5, 6), seen={6}, k=10)

    assert [one.item_idx for one in found] == [9, 5, 3, 4]  # more rows of train first, then the lower id


def test_nearest_items_are_those_of_the_same_direction_whatever_their_length(make_prepared: MakePrepared) -> None:
    advisor = RecommendingModel(Compass().eval(), make_prepared(), earlier=("train",), batch_size=100)

    found = advisor.nearest(10, k=4)

    assert advisor.has_vectors
    assert {one.item_idx for one in found[:2]} == {9, 11}
    assert {one.item_idx for one in found[2:]} == {8, 12}
    assert found[0] == ScoredItem(found[0].item_idx, pytest.approx(np.cos(np.deg2rad(10)), abs=1e-5))
    assert not RecommendingModel(Same().eval(), make_prepared(seed=1), earlier=("train",), batch_size=7).has_vectors
