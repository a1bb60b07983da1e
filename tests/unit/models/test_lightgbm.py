"""Trees on collaborative features: no leak of a row's own label, and planted effects are learned."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config import RunConfig
from recsys_cli.errors import MissingExtraError, TrainingError
from recsys_cli.evaluation.loaded_run import make_context
from recsys_cli.features.schema import UNSEEN, Column, Kind, Role, Schema
from recsys_cli.models import build
from recsys_cli.models.collaborative.features import fit_folds, folds_of_pairs, out_of_fold
from recsys_cli.models.collaborative.rows import Rows
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.ranking.lightgbm import LightGBM as Model
from recsys_cli.stages.train import train_on
from tests.rated import FEATURES

USERS, ITEMS = 60, 40
USER = Column(name="user", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=USERS, vocabulary="u")
ITEM = Column(name="item", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=ITEMS, vocabulary="i")
LABEL = Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="float32")
STARS = Column(name="stars", role=Role.LABEL, kind=Kind.NUMERIC, dtype="float32")
HOUR = Column(name="hour", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32")
SHOP = Column(name="shop", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=500, vocabulary="s")
KEYS = Column(
    name="keys", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=9, vocabulary="k", ragged=True
)
QUICK = {"num_trees": 30, "learning_rate": 0.2, "min_data_in_leaf": 20, "embedding_dim": 4, "factor_l2": 1.0}


def features_of(model: Model, rows: Rows) -> torch.Tensor:
    """Return the collaborative features of train rows."""
    fold = folds_of_pairs(rows, model.config.folds, seed=model.seed)
    parts = fit_folds(model.config, model.schema, model.categories, rows, fold, seed=model.seed)
    return out_of_fold(parts, rows, fold)


def a_batch(num_rows: int = 1_500, *, seed: int = 0) -> Batch:
    """Rows with random columns and labels."""
    draw = torch.Generator().manual_seed(seed)

    def ids(size: int, count: int = num_rows) -> torch.Tensor:
        return torch.randint(3, size, (count,), generator=draw, dtype=torch.int32)

    lengths = torch.randint(0, 3, (num_rows,), generator=draw)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    features = {
        "user": ids(USERS), "item": ids(ITEMS), "shop": ids(500), "keys": Ragged(ids(9, int(offsets[-1])), offsets),
        "hour": torch.rand(num_rows, generator=draw) * 24,
    }  # fmt: skip
    label = torch.randint(0, 2, (num_rows,), generator=draw).float()
    return Batch(features, {"label": label, "stars": (label + torch.rand(num_rows, generator=draw)) / 2})


def context_of(batch: Batch) -> TrainingContext:
    return TrainingContext(lambda: pytest.fail("whole rows are what it reads"), dict, lambda: batch.parts(3))


def a_model(*columns: Column, **options: object) -> Model:
    torch.manual_seed(0)
    model = build("lightgbm", {**QUICK, **options}, Schema(columns=(USER, ITEM, *columns)))
    assert isinstance(model, Model)
    return model


def labelled(batch: Batch, label: torch.Tensor, **others: torch.Tensor) -> Batch:
    return Batch(batch.features, {"label": label.float(), **others}, batch.weight)


def auc(model: Model, batch: Batch) -> float:
    positive = batch.labels["label"].numpy() > 0.5
    ranks = rankdata(model.score(batch).numpy())
    return float((ranks[positive].mean() - (positive.sum() + 1) / 2) / (~positive).sum())


def test_features_of_a_train_row_exclude_all_labels_of_its_pair() -> None:
    model, batch = a_model(KEYS, SHOP, LABEL, STARS), a_batch(2_000)
    features = batch.features
    pairs = features["user"] * ITEMS + features["item"]
    pair = pairs == torch.bincount(pairs).argmax()
    assert pair.sum() > 3
    others = {name: torch.where(pair, 1 - label, label) for name, label in batch.labels.items()}
    rows, turned = (
        Rows.of(labelled(batch, **labels), model.schema, model.categories) for labels in (batch.labels, others)
    )
    before, after = features_of(model, rows), features_of(model, turned)
    assert torch.equal(before[pair], after[pair])
    assert not torch.equal(before, after)


def test_a_row_of_train_does_not_count_itself() -> None:
    model, batch = a_model(LABEL, folds=2), a_batch(300)
    rows = Rows.of(batch, model.schema, model.categories)
    counts = features_of(model, rows)[:, 0]  # how many rows its user has
    assert (counts < torch.bincount(rows.users)[rows.users]).all()
    assert counts.max() > 1


def test_user_and_item_effects_are_learned_without_other_features() -> None:
    taste = torch.randn(USERS, 2, generator=torch.Generator().manual_seed(1))
    kind = torch.randn(ITEMS, 2, generator=torch.Generator().manual_seed(2))

    def planted(batch: Batch) -> Batch:
        product = (taste[batch.features["user"]] * kind[batch.features["item"]]).sum(1)
        return labelled(batch, product > 0)

    model = a_model(LABEL)
    model.fit(context_of(planted(a_batch())))
    assert auc(model, planted(a_batch(seed=1))) > 0.85


def test_interaction_features_are_learned() -> None:
    def planted(batch: Batch) -> Batch:
        return labelled(batch, (batch.features["hour"] > 7) & (batch.features["hour"] < 15))

    model = a_model(HOUR, LABEL)
    model.fit(context_of(planted(a_batch())))
    assert auc(model, planted(a_batch(seed=1))) > 0.99


def test_high_cardinality_columns_are_learned_by_their_means() -> None:
    def planted(batch: Batch) -> Batch:
        return labelled(batch, batch.features["shop"] % 2)

    model = a_model(SHOP, LABEL, smoothing=1.0)
    model.fit(context_of(planted(a_batch(6_000))))
    assert auc(model, planted(a_batch(seed=1))) > 0.95


def test_tastes_are_learned() -> None:
    """Each user likes one of the categories, independently of other users."""
    liked = torch.randint(3, 9, (USERS,), generator=torch.Generator().manual_seed(3))

    def planted(batch: Batch) -> Batch:
        keys = (3 + torch.arange(batch.num_rows) % 6).int()
        lists = Ragged(keys, torch.arange(batch.num_rows + 1))
        label = liked[batch.features["user"]] == keys
        return labelled(Batch({**batch.features, "keys": lists}, {}), label)

    model = a_model(KEYS, LABEL, smoothing=1.0)
    model.fit(context_of(planted(a_batch(4_000))))
    assert auc(model, planted(a_batch(seed=1))) > 0.95


def test_a_second_label_adds_signal_and_the_first_is_predicted() -> None:
    draw = torch.Generator().manual_seed(4)
    quality = torch.rand(ITEMS, generator=draw)

    def planted(batch: Batch) -> Batch:
        stars = quality[batch.features["item"]]
        return labelled(batch, torch.rand(batch.num_rows, generator=draw) < stars, stars=stars)

    train, test = planted(a_batch(600)), planted(a_batch(4_000, seed=1))
    of_both, of_one = a_model(LABEL, STARS), a_model(LABEL)
    of_both.fit(context_of(train))
    of_one.fit(context_of(Batch(train.features, {"label": train.labels["label"]})))
    assert auc(of_both, test) > auc(of_one, test)


def test_rows_of_weight_0_do_not_affect_the_trees() -> None:
    batch = a_batch()
    wrong = torch.arange(1_500) % 2 == 0
    right = batch.features["hour"] > 12
    mixed = Batch(batch.features, {"label": torch.where(wrong, ~right, right).float()}, (~wrong).float())
    model = a_model(HOUR, LABEL)
    model.fit(context_of(mixed))
    assert auc(model, labelled(batch, right)) > 0.99


def test_cold_start_ids_are_scored() -> None:
    model = a_model(KEYS, SHOP, HOUR, LABEL)
    model.fit(context_of(a_batch()))
    ids = torch.arange(3, dtype=torch.int32)
    lists = Ragged(torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([0, 1, 1, 3]))
    unseen = Batch(
        {"user": ids, "item": ids.flip(0), "shop": ids, "keys": lists, "hour": torch.full((3,), torch.nan)}, {}
    )
    assert torch.isfinite(model.score(unseen)).all()


@pytest.mark.parametrize("side", ["user", "item"])
def test_features_decide_for_users_and_items_unknown_to_train(side: str) -> None:
    """The label is the sign of a number of one side, turned by a category of the other side; right 90 % of the time."""
    draw = torch.Generator().manual_seed(6)
    other, number = ("item", "user") if side == "user" else ("user", "item")
    value = torch.randn(300, generator=draw)
    sizes = {number: 300, other: ITEMS}
    columns = [column.model_copy(update={"cardinality": sizes[column.name]}) for column in (USER, ITEM)]
    parity = SHOP.model_copy(update={"cardinality": 5})

    def planted(first: int, last: int, *, cold: bool) -> Batch:
        ids = torch.arange(first, last).repeat_interleave(8)
        others = torch.randint(3, ITEMS, (len(ids),), generator=draw)
        right = torch.rand(len(ids), generator=draw) < 0.9
        label = ((value[ids] > 0) == (others % 2 == 0)) == right
        known_ids = torch.full_like(ids, UNSEEN) if cold else ids
        features = {number: known_ids.int(), other: others.int(), "shop": (3 + others % 2).int(), "hour": value[ids]}
        return Batch(features, {"label": label.float()})

    torch.manual_seed(0)
    model = build("lightgbm", {}, Schema(columns=(*columns, parity, HOUR, LABEL)))
    assert isinstance(model, Model)
    model.fit(context_of(planted(3, 170, cold=False)))
    assert auc(model, planted(170, 300, cold=True)) > 0.85


def test_trees_of_any_size_are_loaded() -> None:
    batch = a_batch(300)
    first, second = a_model(HOUR, LABEL), a_model(HOUR, LABEL, num_trees=3)
    for model in (first, second):
        model.fit(context_of(batch))
    assert not torch.equal(first.score(batch), second.score(batch))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.score(batch), second.score(batch))


def test_it_has_to_be_fitted_before_it_scores() -> None:
    with pytest.raises(TrainingError, match="has no trees yet"):
        a_model(LABEL).score(a_batch(10))


def test_whole_rows_are_those_of_the_files(make_prepared) -> None:
    data = make_prepared(rows=2_000, shards=3)
    rows = make_context(data, "train", "valid")
    interactions = rows.interactions()
    users, labels = [], []
    for batch in rows.batches():
        users.append(batch.features["userId"])
        labels.append(batch.labels["label"])
        assert isinstance(batch.features["genres"], Ragged)
    np.testing.assert_array_equal(torch.cat(users), interactions.user_idx)
    np.testing.assert_array_equal(torch.cat(labels), interactions.labels)
    assert len(interactions) == 2_500


def a_run() -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        "model": {"name": "lightgbm", **QUICK},
        "train": {"device": "cpu"},
    })  # fmt: skip


def test_a_run_is_trained_like_any_other(make_prepared, workspace) -> None:
    made = train_on(make_prepared(), a_run(), workspace)
    assert made.artifact.manifest["valid"]["auc"] > 0.95


def test_a_missing_extra_is_told_before_there_is_a_run(
    make_prepared, workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    monkeypatch.delitem(sys.modules, "recsys_cli.models.ranking.lightgbm", raising=False)
    with pytest.raises(MissingExtraError, match="the model lightgbm needs the 'lightgbm' extra"):
        train_on(make_prepared(), a_run(), workspace)
    assert workspace.runs() == []
