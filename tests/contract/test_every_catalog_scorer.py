"""What is true of every model that scores the catalog by its own way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.features.schema import FIRST, UNSEEN, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import TrainingContext
from tests.contract.model_cases import SCHEMA, SIZES, a_model, catalog_scorers, closed_form, names_where, some_known

USERS, ITEMS = torch.arange(3, 23), torch.tensor([7, 3, 19, 12, 5])


@pytest.fixture(params=catalog_scorers())
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_scores_of_the_catalog_are_those_of_the_pairs(name: str) -> None:
    model = a_model(name).eval()
    pairs = {"user.id": USERS.repeat_interleave(len(ITEMS)).int(), "item": ITEMS.repeat(len(USERS)).int()}
    with torch.inference_mode():
        scores = model.scores(USERS, ITEMS)
        one_by_one = model.score(Batch(some_known().join(pairs), {}))
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, one_by_one.view(len(USERS), len(ITEMS)), atol=1e-4, rtol=1e-4)


def test_every_id_has_a_score(name: str) -> None:
    model = a_model(name).eval()
    with torch.inference_mode():
        scores = model.scores(torch.arange(SIZES["user.id"]), torch.arange(SIZES["item"]))
    assert scores.shape == (SIZES["user.id"], SIZES["item"])
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("vectors_of", names_where(lambda model: model.scoring == "dot_product"))
def test_vectors_have_one_width(vectors_of: str) -> None:
    model = a_model(vectors_of).eval()
    assert model.user_vectors(USERS).shape[1] == model.item_vectors(ITEMS).shape[1]


@pytest.mark.parametrize("name_of_one_that_folds_in", names_where(lambda model: model.folds_in))
def test_a_model_that_folds_in_knows_nothing_of_a_user_but_the_history(name_of_one_that_folds_in: str) -> None:
    model = a_model(name_of_one_that_folds_in).eval()
    known = some_known()
    items = torch.arange(3, SIZES["item"])
    with torch.inference_mode():
        model.set_context(known)
        before = model.scores(USERS, items)
        model.set_context(TrainingContext(lambda: with_other_ids(known.interactions()), known.join))
        after = model.scores(USERS.flip(0), items)
    torch.testing.assert_close(before, after)


def with_other_ids(rows: Interactions) -> Interactions:
    """Give each of `USERS` the history of its mirror image."""
    mirrored = (int(USERS[0] + USERS[-1]) - rows.user_idx).astype(np.int32)
    inside = (rows.user_idx >= int(USERS[0])) & (rows.user_idx <= int(USERS[-1]))
    return Interactions(np.where(inside, mirrored, rows.user_idx), rows.item_idx, rows.labels, None, rows.times)


@pytest.mark.parametrize("name", sorted(set(closed_form()) & set(catalog_scorers())))
def test_a_catalog_without_an_item_of_its_own_is_fitted_and_scored(name: str) -> None:
    """All items came too seldom to have an id: every row is of the one that they share."""
    columns = [
        column.model_copy(update={"cardinality": FIRST}) if column.name == "item" else column
        for column in SCHEMA.columns
    ]
    model = build(name, {}, Schema(columns=tuple(columns)))
    users = np.arange(3, 23, dtype=np.int32)
    rows = Interactions(users, np.full(20, UNSEEN, np.int32), np.ones(20, np.float32), times=np.arange(20))
    known = TrainingContext(lambda: rows, dict)
    model.fit(known)
    model.set_context(known)
    scores = model.scores(USERS, torch.tensor([UNSEEN]))
    assert scores.shape == (len(USERS), 1)
    assert torch.isfinite(scores).all()
