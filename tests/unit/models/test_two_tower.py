from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.retrieval.item_catalog import ItemCatalog
from recsys_cli.models.two_tower import model as two_tower
from recsys_cli.models.two_tower.model import Model
from tests.planted import SCHEMA, found_by, learn, planted, popularity

CONDITIONAL = torch.tensor([[50, 25, 12, 6, 4, 3], [60, 10, 10, 10, 5, 5]]) / 100
"""Choice probabilities of users 3 and 4 for items 3 to 8."""
USERS, ITEMS = torch.tensor([3, 4]), torch.arange(3, 9)


def chosen(model: Model, steps: int = 400) -> torch.Tensor:
    """Train on rows with frequencies equal to their probability; return the softmax of the scores, shape (2, 6)."""
    counts = (CONDITIONAL * 100).round().long().flatten()
    users, items = (
        ids.flatten().repeat_interleave(counts).int() for ids in (USERS[:, None].expand(2, 6), ITEMS.expand(2, 6))
    )
    labels = torch.ones(len(users))
    model.set_context(TrainingContext(lambda: Interactions(users.numpy(), items.numpy(), labels.numpy()), dict))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(Batch({"user": users, "item": items}, {"label": labels})).backward()
        optimizer.step()
    with torch.no_grad():
        return model.eval().scores(USERS, ITEMS).softmax(dim=1)


def a_model(**options: object) -> Model:
    torch.manual_seed(0)
    model = build("two-tower", {"output_dim": 8, "embedding_dim": 8, "temperature": 0.2, **options}, SCHEMA)
    assert isinstance(model, Model)
    return model


def test_with_log_q_scores_recover_choice_probabilities() -> None:
    torch.testing.assert_close(chosen(a_model(num_negatives=0)), CONDITIONAL, atol=0.01, rtol=0)


def test_without_log_q_popular_items_are_pushed_down() -> None:
    found = chosen(a_model(num_negatives=0, log_q=False))
    by_popularity = CONDITIONAL / CONDITIONAL.sum(dim=0)
    torch.testing.assert_close(found, by_popularity / by_popularity.sum(dim=1, keepdim=True), atol=0.01, rtol=0)
    assert (found - CONDITIONAL)[:, 0].abs().min() > 0.3


def test_sampled_negatives_are_corrected_by_their_expected_count(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(num_negatives=240)
    monkeypatch.setattr(
        ItemCatalog,
        "sample",
        lambda self, number: self.items.repeat(40),
    )
    torch.testing.assert_close(chosen(model), CONDITIONAL, atol=0.01, rtol=0)


def test_false_negatives_are_filtered_if_enabled() -> None:
    both = np.array([3, 4], dtype=np.int32)
    batch = Batch({"user": torch.tensor([3, 3]), "item": torch.tensor([3, 4])}, {"label": torch.ones(2)})
    losses = []
    for avoid in (True, False):
        model = a_model(num_negatives=0, filter_false_negatives=avoid)
        model.set_context(
            TrainingContext(lambda: Interactions(np.full(2, 3, np.int32), both, np.ones(2, np.float32)), dict)
        )
        losses.append(model.loss(batch).item())
    assert losses[0] == 0
    assert losses[1] > 0.1


def test_large_batches_are_split_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_tower, "_MAX_ROWS", 3)
    assert [(part.start, part.stop) for part in two_tower._parts(7)] == [(0, 2), (2, 4), (4, 7)]
    assert [(part.start, part.stop) for part in two_tower._parts(0)] == [(0, 0)]
    data = planted()
    model = a_model(num_negatives=0)
    model.set_context(data.known())

    def loss(*rows: int) -> torch.Tensor:
        batch = data.batch()
        return model.loss(
            Batch({name: ids[list(rows)] for name, ids in batch.features.items()}, {"label": torch.ones(len(rows))})
        )

    torch.testing.assert_close(loss(0, 50, 100, 150), (loss(0, 50) + loss(100, 150)) / 2)


def column(name: str, *, table: str | None, kind: Kind = Kind.CATEGORICAL, ragged: bool = False) -> Column:
    ids = {"cardinality": 9, "vocabulary": name} if kind is Kind.CATEGORICAL else {}
    return Column(name=name, role=Role.FEATURE, kind=kind, dtype="int32", table=table, ragged=ragged, **ids)


FEATURES = Schema(
    columns=(
        *SCHEMA.columns,
        column("genres", table="item", ragged=True),
        column("age", table="user", kind=Kind.NUMERIC),
        column("hour", table=None),
    )
)


def context_of(age: float, genre: int) -> TrainingContext:
    def join(ids):
        found = dict(ids)
        if "item" in ids:
            number = len(ids["item"])
            found["genres"] = Ragged(torch.full((number,), genre), torch.arange(number + 1))
        if "user" in ids:
            found["age"] = torch.full((len(ids["user"]),), age)
        return found

    return TrainingContext(lambda: planted().train, join)


@pytest.mark.parametrize("hidden", [(), (16,)])
def test_each_tower_reads_the_features_of_its_id(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = build("two-tower", {"hidden_dims": hidden}, FEATURES).eval()
    assert isinstance(model, Model)
    ids = torch.tensor([5, 6])

    def vectors(age: float, genre: int) -> tuple[torch.Tensor, torch.Tensor]:
        model.set_context(context_of(age, genre))
        return model.user_vectors(ids), model.item_vectors(ids)

    user, item = vectors(0.1, 3)
    older, same = vectors(0.9, 3)
    assert torch.equal(item, same)
    assert not torch.allclose(user, older)
    same, comedy = vectors(0.1, 4)
    assert torch.equal(user, same)
    assert not torch.allclose(item, comedy)
    torch.testing.assert_close(item.norm(dim=1), torch.ones(2))
    assert set(model.users.embeddings.names) | set(model.items.embeddings.names) == {"user", "item", "genres"}


def test_a_list_of_numbers_is_rejected() -> None:
    columns = (*SCHEMA.columns, column("prices", table="item", kind=Kind.NUMERIC, ragged=True))
    with pytest.raises(ConfigError, match="does not support lists of numbers: prices"):
        build("two-tower", {}, Schema(columns=columns))


def test_widths_are_given_for_columns_of_towers() -> None:
    model = build("two-tower", {"embedding_dim": {"genres": 3, "user": 5}}, FEATURES)
    assert model.items.embeddings.dims == {"genres": 3, "item": 16}
    assert model.users.embeddings.dims == {"user": 5}
    with pytest.raises(ConfigError, match="no categorical column 'hour'"):
        build("two-tower", {"embedding_dim": {"hour": 3}}, FEATURES)


@pytest.mark.parametrize("options", [{}, {"num_negatives": 0}, {"hidden_dims": (32,), "filter_false_negatives": True}])
def test_planted_groups_are_found(options: dict[str, object]) -> None:
    data = planted()
    torch.manual_seed(0)
    model = learn(build("two-tower", {"output_dim": 16, **options}, SCHEMA), data)
    assert popularity(data) < 0.25
    assert found_by(model, data) > 0.5
