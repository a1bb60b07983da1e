"""Row weights: a row of weight 2 counts as that row twice, one of weight 0 as none, in every model of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.training.trainer import train_part
from tests.contract.model_cases import SIZES, a_batch, a_model, names_where, rows_of, some_interactions, some_known
from tests.contract.test_every_model import WEIGHTED

PAIRS = Batch({"user.id": torch.arange(3, 30).repeat_interleave(17), "item": torch.arange(3, 20).repeat(27)}, {})
OPTIONS: dict[str, list[dict[str, object]]] = {
    "popularity": [{}, {"own_first": True}],
    "two-stage": [{"candidates": [{"name": "popularity"}, {"name": "ials"}], "ranker": None}],  # trees count rows
    "ials": [{"regularization": 1.0}, {}],
}
FITTED_TO_PAIRS = [
    (name, options)
    for name in names_where(lambda model: model.rows == "all" and not model.probabilistic)
    for options in OPTIONS.get(name, [{}])
]
SOME = torch.arange(64) % 3 == 0


def some_rows(weights: tuple[int, ...]) -> Interactions:
    """Interactions with weights in turn."""
    rows = some_interactions()
    return replace(rows, weights=np.resize(np.array(weights, np.float32), len(rows)))


def context_of(rows: Interactions) -> TrainingContext:
    known = some_known()
    ids = {"user.id": torch.from_numpy(rows.user_idx), "item": torch.from_numpy(rows.item_idx)}
    labels, weight = torch.from_numpy(rows.labels), None if rows.weights is None else torch.from_numpy(rows.weights)
    rest = {name: value for name, value in a_batch(len(rows)).features.items() if name not in ids}
    batch = Batch({**rest, **known.join(ids)}, {"label": labels}, weight)
    return TrainingContext(lambda: rows, known.join, lambda: (batch,), train_part)


def fitted(name: str, options: Mapping[str, object], rows: Interactions) -> Model:
    torch.manual_seed(0)
    model = build(name, options, WEIGHTED)
    model.fit(context_of(rows))
    model.set_context(context_of(rows))
    return model.eval()


@pytest.mark.parametrize("weights", [(1, 2, 1, 3), (0, 1, 1, 2, 0)], ids=str)
@pytest.mark.parametrize(("name", "options"), FITTED_TO_PAIRS, ids=str)
def test_a_closed_form_model_of_weights_is_that_of_repeated_rows(
    name: str, options: dict[str, object], weights: tuple[int, ...]
) -> None:
    rows = some_rows(weights)
    assert rows.weights is not None
    repeated = replace(rows.chosen(np.repeat(np.arange(len(rows)), rows.weights.astype(int))), weights=None)
    found, expected = (fitted(name, options, each).score(PAIRS) for each in (rows, repeated))
    assert found.std() > 0
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", names_where(lambda model: model.rows == "all" and model.probabilistic))
def test_trees_do_without_rows_of_weight_0(name: str) -> None:
    rows = some_rows((1, 1, 0))
    dropped = fitted(name, {"num_trees": 5}, replace(rows.counted(), weights=None)).state_dict()
    assert all(
        torch.equal(value, dropped[key]) for key, value in fitted(name, {"num_trees": 5}, rows).state_dict().items()
    )


def total(model: Model, batch: Batch) -> float:
    """Return the loss summed over the rows."""
    torch.manual_seed(0)
    return float(model.loss(batch).detach().double()) * batch.num_rows


def weighted(batch: Batch, more: float) -> Batch:
    return replace(batch, weight=1 + more * SOME.float())


@pytest.mark.parametrize("name", names_where(lambda model: model.rows == "interactions"))
def test_the_loss_of_a_row_counts_as_often_as_its_weight(name: str) -> None:
    model, batch = a_model(name).train(), a_batch(len(SOME))
    once, twice, thrice = (total(model, weighted(batch, more)) for more in (0, 1, 2))
    assert once == pytest.approx(total(model, batch), rel=1e-5)
    assert twice - once > 0.05 * once
    assert thrice - twice == pytest.approx(twice - once, rel=1e-3)


@pytest.mark.parametrize("name", names_where(lambda model: model.rows == "interactions"))
def test_a_row_of_weight_0_has_no_loss(name: str) -> None:
    model, batch = a_model(name).eval(), a_batch(len(SOME))
    first = torch.arange(len(SOME)) < 40
    kept = total(model, rows_of(batch, list(range(40))))
    assert total(model, replace(batch, weight=first.float())) == pytest.approx(kept, rel=1e-4)


@pytest.mark.parametrize("name", names_where(lambda model: model.rows == "users"))
def test_a_target_of_a_history_counts_as_often_as_the_weight_of_its_row(name: str) -> None:
    """The weight is that of the row as a target: as input a row of weight 0, such as a view, tells as much as others."""
    model, users = a_model(name).train(), torch.arange(3, SIZES["user.id"], dtype=torch.int32)
    batch = Batch({"user.id": users}, {"label": torch.ones(len(users))})

    def of(*weights: int) -> float:
        model.set_context(context_of(some_rows(weights)))
        return total(model, batch)

    once, twice, left, rest = of(1), of(1, 2), of(0, 1), of(1, 0)
    assert twice - once == pytest.approx(left, rel=1e-3)
    assert left + rest == pytest.approx(once, rel=1e-3)
    assert min(left, rest) > 0.2 * once
