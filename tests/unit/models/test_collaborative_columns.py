"""Collaborative features of ranking models: out of fold in training, the mean over all folds afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import UNSEEN, Column, Kind, Role, Schema
from recsys_cli.models import build
from recsys_cli.models.collaborative.features import CollaborativeColumns, folds_of_pairs, with_collaborative_columns
from recsys_cli.models.collaborative.rows import Rows
from recsys_cli.models.configs.ranking import CollaborativeOptions
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.ranking.model import RankingModel

USER = Column(name="user", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=40, vocabulary="u")
ITEM = Column(name="item", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=30, vocabulary="i")
SHOP = Column(name="shop", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=9, vocabulary="s")
LABEL = Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="float32")
SCHEMA = Schema(columns=(USER, ITEM, SHOP, LABEL))
OPTIONS = {"embedding_dim": 4, "positions": 4}
RANKING_MODELS = ["dcn-v2", "deepfm", "dlrm", "fm", "logistic", "mlp", "mmoe", "neumf", "ple", "wide-deep"]


def a_batch(num_rows: int = 600, *, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    features = {
        column.name: torch.randint(3, column.cardinality or 0, (num_rows,), generator=draw, dtype=torch.int32)
        for column in (USER, ITEM, SHOP)
    }
    return Batch(features, {"label": ((features["user"] + features["item"]) % 2).float()})


def context(batch: Batch) -> TrainingContext:
    return TrainingContext(lambda: pytest.fail("it reads whole rows"), dict, lambda: batch.parts(3))


def fitted(batch: Batch) -> CollaborativeColumns:
    options = CollaborativeOptions.model_validate(OPTIONS)
    columns = CollaborativeColumns(options, with_collaborative_columns(SCHEMA, options))
    columns.fit(context(batch))
    return columns


def added(columns: CollaborativeColumns, batch: Batch) -> torch.Tensor:
    features = columns(batch).features
    return torch.stack([features[name] for name in columns.names], dim=1)


@pytest.mark.parametrize("row", [0, 17, 99])
def test_a_train_row_never_sees_its_own_label(row: int) -> None:
    """Nor does another row of the same user and item."""
    batch = a_batch()
    pair = (batch.features["user"] == batch.features["user"][row]) & (
        batch.features["item"] == batch.features["item"][row]
    )
    flipped = Batch(batch.features, {"label": torch.where(pair, 1 - batch.labels["label"], batch.labels["label"])})
    first, second = (fitted(some) for some in (batch, flipped))
    before, after = (added(columns, batch) / columns.inverse_scale + columns.center for columns in (first, second))
    torch.testing.assert_close(before[pair], after[pair])
    assert not torch.allclose(before, after)


@pytest.mark.parametrize("number", range(5))
def test_exchanged_labels_of_a_fold_change_the_features_of_all_other_folds_only(number: int) -> None:
    batch = a_batch()
    rows = Rows.of(batch, SCHEMA, fitted(batch).categories)
    own = folds_of_pairs(rows, 5, seed=17) == number
    label = batch.labels["label"]
    exchanged = Batch(batch.features, {"label": torch.where(own, 1 - label, label)})
    columns = [fitted(some) for some in (batch, exchanged)]
    before, after = (added(one, batch) / one.inverse_scale + one.center for one in columns)
    torch.testing.assert_close(before[own], after[own])
    changed = ~torch.isclose(before, after, atol=1e-6).all(1)
    assert 0 < own.sum() < len(own)
    assert changed[~own].all()


def test_columns_are_standardized_over_train_and_independent_of_the_batch() -> None:
    batch = a_batch()
    columns = fitted(batch)
    found = added(columns, batch)
    torch.testing.assert_close(found.mean(0), torch.zeros(found.shape[1]), atol=1e-4, rtol=0)
    parts = torch.cat([added(columns, part) for part in batch.parts(4)])
    torch.testing.assert_close(parts, found)


def test_evaluation_uses_the_mean_over_folds_and_only_the_checkpoint() -> None:
    batch, other = a_batch(), a_batch(seed=1)
    columns, loaded = fitted(batch), fitted(other)
    rows = Rows.of(batch, columns.schema, columns.categories)
    mean = torch.stack([part.columns(rows) for part in columns.parts]).mean(0).clamp(columns.lowest, columns.highest)
    found = added(columns.eval(), batch) / columns.inverse_scale + columns.center
    torch.testing.assert_close(found, mean, atol=1e-5, rtol=1e-4)
    assert not any(name.startswith("parts") for name in columns.state_dict())
    loaded.load_state_dict(columns.state_dict())
    assert torch.equal(added(loaded.eval(), other), added(columns, other))


def test_columns_of_other_rows_have_the_scale_of_train_rows() -> None:
    """With few rows per id: the product of factors fitted to all of train is several times that of the folds."""
    draw = torch.Generator().manual_seed(0)
    taste = torch.randn(303, 2, generator=draw)
    kind = torch.randn(203, 2, generator=draw)
    pairs = torch.randperm(300 * 200, generator=draw)[:20_000]
    users, items = pairs // 200 + 3, pairs % 200 + 3
    label = (torch.rand(len(pairs), generator=draw) < (taste[users] * kind[items]).sum(1).sigmoid()).float()
    parts = [
        Batch({"user": users[own], "item": items[own]}, {"label": label[own]})
        for own in (slice(15_000), slice(15_000, None))
    ]
    sizes = {"user": 303, "item": 203}
    ids = [column.model_copy(update={"cardinality": sizes[column.name]}) for column in (USER, ITEM)]
    options = CollaborativeOptions()
    columns = CollaborativeColumns(options, with_collaborative_columns(Schema(columns=(*ids, LABEL)), options))
    columns.fit(context(parts[0]))
    found = added(columns.eval(), parts[1])
    assert found.mean(0).abs().max() < 0.15
    assert found.std(0).max() < 1.15


def test_columns_constant_in_training_stay_constant() -> None:
    """Users with one row have none in the other folds, but one in most parts of the mean."""
    users = torch.arange(3, 40, dtype=torch.int32)
    items = 3 + users % 20
    features = {"user": users, "item": items, "shop": torch.full_like(users, 3)}
    columns = fitted(Batch(features, {"label": (users % 2).float()}))
    found = added(columns.eval(), Batch({**features, "item": items + 1}, {}))
    assert found.abs().max() < 20
    assert not found[:, 0].any()


@pytest.mark.parametrize("num_rows", [1, 50])
def test_one_pair_has_finite_columns(num_rows: int) -> None:
    ids = torch.full((num_rows,), 3, dtype=torch.int32)
    batch = Batch({"user": ids, "item": ids, "shop": ids}, {"label": torch.arange(num_rows) % 2.0})
    options = CollaborativeOptions.model_validate(OPTIONS)
    columns = CollaborativeColumns(options, with_collaborative_columns(SCHEMA, options))
    columns.fit(TrainingContext(lambda: pytest.fail("it reads whole rows"), dict, lambda: [batch]))
    assert torch.isfinite(added(columns, batch)).all()
    assert added(columns.eval(), batch).abs().max() < 20


def test_the_number_of_folds_is_bounded() -> None:
    with pytest.raises(ConfigError, match="at most 100"):
        build("fm", {"collaborative": {"folds": 101}}, SCHEMA)


def test_unseen_ids_have_finite_columns() -> None:
    batch = a_batch(5)
    unseen = {name: torch.full_like(ids, UNSEEN) for name, ids in batch.features.items()}
    assert torch.isfinite(added(fitted(a_batch()).eval(), Batch(unseen, {}))).all()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", RANKING_MODELS)
def test_every_ranking_model_learns_from_them(name: str, sparse: bool) -> None:
    torch.manual_seed(0)
    model = build(name, {"collaborative": OPTIONS}, SCHEMA, sparse=sparse)
    assert isinstance(model, RankingModel)
    batch = a_batch()
    model.set_context(context(batch))
    model.loss(batch).backward()
    model.eval()
    model.set_context(context(a_batch(seed=1)))  # of no effect: what the model has learned is in its weights
    scores = model.score(batch)
    assert scores.shape == (600,)
    assert torch.isfinite(scores).all()
    state = model.state_dict()
    again = build(name, {"collaborative": OPTIONS}, SCHEMA).eval()
    again.load_state_dict(state)
    assert torch.equal(again.score(batch), scores)


def test_there_are_none_by_default() -> None:
    model = build("logistic", {}, SCHEMA)
    assert isinstance(model, RankingModel)
    assert model.collaborative is None


@pytest.mark.parametrize("folds", [2, 5, 10])
def test_items_of_a_user_spread_over_all_folds(folds: int) -> None:
    batch = Batch(
        {
            "user": torch.arange(200).repeat_interleave(100),
            "item": torch.arange(100).repeat(200),
            "shop": torch.zeros(20_000),
        },
        {},
    )
    options = CollaborativeOptions.model_validate({**OPTIONS, "folds": folds})
    columns = CollaborativeColumns(options, with_collaborative_columns(SCHEMA, options))
    rows = SimpleNamespace(users=batch.features["user"], items=batch.features["item"])
    by_user = columns._folds(rows).view(200, 100)
    counts = torch.stack([torch.bincount(of_user[:20], minlength=folds) for of_user in by_user]).float()
    chi_square = ((counts - 20 / folds) ** 2 / (20 / folds)).sum(1)
    assert chi_square.mean() == pytest.approx(folds - 1, rel=0.3)
