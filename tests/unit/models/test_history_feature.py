"""Histories as a feature of ranking models: cut off at a row's time, pooled or attended, of use where only they decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import HISTORY_USER
from recsys_cli.features.schema import FIRST, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.metrics.labels import AUC
from recsys_cli.models import build
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.ranking.history import UserHistories, Window

GROUPS, NUM_ITEMS, NUM_USERS, ROWS = 4, 24, 240, 20
USER, ITEM, LIST = (
    Column(name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=size + FIRST, vocabulary=name[:4], ragged=ragged)
    for name, role, size, ragged in (
        ("user", Role.USER, NUM_USERS, False), ("item", Role.ITEM, NUM_ITEMS, False), ("items", Role.FEATURE, NUM_ITEMS, True),
    )
)  # fmt: skip
KIND = Column(
    name="kind", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=9, ragged=True, table="item"
)
LABEL = Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8")
TIME = Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64")
SCHEMA = Schema(columns=(USER, ITEM, KIND, LABEL, TIME))
SMALL = {"embedding_dim": 8, "hidden_dims": [32], "dropout": 0.0, "embedding_dropout": 0.0}


def join(ids: dict[str, torch.Tensor]) -> dict[str, Feature]:
    features: dict[str, Feature] = dict(ids)
    if "item" in ids:
        items = ids["item"].long()
        lengths = (items % 3).clamp(max=2)
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        features["kind"] = Ragged((FIRST + items % 5).repeat_interleave(lengths).int(), offsets)
    return features


def some_rows(num_rows: int = 500, *, seed: int = 0) -> Interactions:
    """Rows with many equal times."""
    draw = np.random.default_rng(seed)
    return Interactions(
        draw.integers(FIRST, FIRST + 9, num_rows).astype(np.int32), draw.integers(2, FIRST + NUM_ITEMS, num_rows).astype(np.int32),
        (draw.random(num_rows) < 0.5).astype(np.float32), times=draw.integers(0, 40, num_rows),
        row_numbers=draw.permutation(num_rows),
    )  # fmt: skip


def slow_history(rows: Interactions, user: int, time: float, length: int) -> list[tuple[int, bool]]:
    events = [
        (rows.times[row], rows.row_numbers[row], int(rows.item_idx[row]), bool(rows.labels[row] > 0.5))
        for row in range(len(rows))
        if rows.user_idx[row] == user and rows.item_idx[row] >= FIRST and rows.times[row] < time
    ]
    return [(item, liked) for _, _, item, liked in sorted(events)][-length:]


def read(window: Window, row: int) -> list[tuple[int, bool]]:
    mask = window.mask[row]
    return list(zip(window.items[row][mask].tolist(), window.is_positive[row][mask].tolist(), strict=True))


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("length", [1, 7, 1_000])
def test_histories_are_those_of_a_slow_twin(length: int, kind: type) -> None:
    rows = replace(some_rows(), times=some_rows().times.astype(kind))
    histories = UserHistories.of(rows, num_users=USER.cardinality)
    window = histories.window(torch.from_numpy(rows.user_idx), torch.from_numpy(rows.times), length)
    assert [read(window, row) for row in range(len(rows))] == [
        slow_history(rows, user, time, length) for user, time in zip(rows.user_idx, rows.times, strict=True)
    ]
    everything = histories.window(torch.arange(-1, USER.cardinality + 2), None, length)
    for row, user in enumerate(range(-1, USER.cardinality + 2)):
        assert read(everything, row) == slow_history(rows, user, np.inf, length)


def auc_of_known_labels(rows: Interactions, *, shift: int) -> float:
    """AUC of a lookup of the row's own item in its history, for labels by chance; each user meets an item once."""
    times = torch.from_numpy(rows.times + shift)
    window = UserHistories.of(rows, num_users=USER.cardinality).window(torch.from_numpy(rows.user_idx), times, 1_000)
    own = window.items == torch.from_numpy(rows.item_idx)[:, None].long()
    scores = ((own & window.is_positive).sum(1) - (own & ~window.is_positive).sum(1)).numpy()
    return AUC.of_rows(rows.labels, scores.astype(float))


def test_a_row_never_sees_itself_or_rows_of_the_same_moment() -> None:
    draw = np.random.default_rng(0)
    users, items = (part.ravel() + FIRST for part in np.indices((40, NUM_ITEMS)))
    labels = (draw.random(len(users)) < 0.5).astype(np.float32)
    rows = Interactions(users.astype(np.int32), items.astype(np.int32), labels, times=draw.integers(0, 9, len(users)))
    assert auc_of_known_labels(rows, shift=0) == 0.5
    assert auc_of_known_labels(rows, shift=1) == 1.0  # the planted leak


class World:
    """A user likes one group of items. Half of the users are not in train: only their history shows the group."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        users = np.repeat(np.arange(NUM_USERS), ROWS)
        items = draw.integers(0, NUM_ITEMS, len(users))
        taste = draw.integers(0, GROUPS, NUM_USERS)
        labels = (items % GROUPS == taste[users]) | (draw.random(len(users)) < 0.05)
        times = np.tile(np.arange(ROWS), NUM_USERS)
        self.rows = Interactions(
            (users + FIRST).astype(np.int32), (items + FIRST).astype(np.int32), labels.astype(np.float32), times=times
        )
        self.train, self.test = users < NUM_USERS // 2, (users >= NUM_USERS // 2) & (times >= ROWS // 2)

    def batch(self, rows: np.ndarray) -> Batch:
        own = self.rows.chosen(rows)
        ids = {"user": torch.from_numpy(own.user_idx), "item": torch.from_numpy(own.item_idx)}
        return Batch({**join(ids), "time": torch.from_numpy(own.times)}, {"label": torch.from_numpy(own.labels)})

    def batches(self, epochs: int) -> Iterator[Batch]:
        draw = np.random.default_rng(1)
        for _ in range(epochs):
            for rows in np.array_split(draw.permutation(np.flatnonzero(self.train)), 10):
                yield self.batch(rows)

    def auc(self, model: Model) -> float:
        with torch.inference_mode():
            return AUC.of_rows(self.rows.labels[self.test], model.eval().score(self.batch(self.test)).numpy())


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def learnt(name: str, world: World, *, rate: float = 0.02, epochs: int = 12, **options: object) -> Model:
    torch.manual_seed(0)
    given = {"embedding_dim": 8, "regularization": 0.0} if name == "fm" else SMALL
    model = build(name, given | options, SCHEMA)
    model.set_context(TrainingContext(lambda: world.rows, join))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for batch in world.batches(epochs):
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("name", ["din", "bst", "fm", "dcn-v2"])
def test_a_history_shows_the_taste_of_new_users(name: str, world: World) -> None:
    options = {"history": {"max_seq_len": 20}} | ({"rate": 0.01, "epochs": 20} if name == "bst" else {})
    assert world.auc(learnt(name, world, **options)) > 0.75


@pytest.mark.parametrize("name", ["mlp", "fm", "dcn-v2"])
def test_without_a_history_nothing_shows_it(name: str, world: World) -> None:
    assert abs(world.auc(learnt(name, world)) - 0.5) < 0.1


def a_model(name: str, context: TrainingContext | None = None, **options: object) -> Model:
    torch.manual_seed(0)
    model = build(name, dict(options), SCHEMA)
    model.set_context(context or TrainingContext(some_rows, join))
    return model.eval()


def test_pooled_columns_are_means_of_their_elements() -> None:
    model = a_model("logistic", history={"max_seq_len": 5})
    rows = some_rows(40, seed=1)
    ids = {"user": torch.from_numpy(rows.user_idx), "item": torch.from_numpy(rows.item_idx)}
    batch = model.history.pooled(Batch({**join(ids), "time": torch.from_numpy(rows.times)}, {}), training=True)
    for row in range(len(rows)):
        events = slow_history(some_rows(), rows.user_idx[row], rows.times[row], 5)
        for name, liked in (("positive history", True), ("other history", False)):
            items = [item for item, is_liked in events if is_liked == liked]
            own, kinds = (batch.features[f"{name} of {column}"].span(row, row + 1) for column in ("item", "kind"))
            assert own.values.tolist() == items
            weight = 1 / max(1, len(events))
            assert own.weights.tolist() == pytest.approx([weight] * len(items))
            lists = [[FIRST + item % 5] * (item % 3) for item in items]
            assert kinds.values.tolist() == [one for part in lists for one in part]
            assert kinds.weights.tolist() == pytest.approx([weight] * len(kinds.values))


@pytest.mark.parametrize("name", ["din", "bst", "fm"])
def test_a_list_column_is_read_like_stored_histories(name: str) -> None:
    rows = replace(some_rows(), labels=np.ones(500, np.float32))
    stored = a_model(name, TrainingContext(lambda: rows, join), history={"max_seq_len": 4, "by_label": False})
    batch = World().batch(np.arange(60))
    batch = replace(batch, features={**batch.features, "user": batch.features["user"] % 9})
    users, times = batch.features["user"].tolist(), batch.features["time"].tolist()
    lists = [slow_history(rows, user, time, 10) for user, time in zip(users, times, strict=True)]
    values = torch.tensor([item for one in lists for item, _ in one], dtype=torch.int32)
    offsets = torch.tensor([0, *[len(one) for one in lists]]).cumsum(0)
    torch.manual_seed(0)
    schema = Schema(columns=(*(column for column in SCHEMA.columns if column != TIME), LIST))
    listed = build(name, {"history": {"max_seq_len": 4, "by_label": False, "column": "items"}}, schema)
    assert listed.timestamp is None
    listed.load_state_dict(stored.state_dict())
    listed.set_context(TrainingContext(lambda: pytest.fail("no interactions are needed"), join))
    features = {**batch.features, "items": Ragged(values, offsets)}
    found = listed.eval().score(Batch({n: f for n, f in features.items() if n != "time"}, {}))
    torch.testing.assert_close(found, stored.score(batch))
    other = Schema(columns=(*SCHEMA.columns, LIST.model_copy(update={"vocabulary": "x"})))
    with pytest.raises(ConfigError, match="items is no list in the vocabulary of item"):
        build(name, {"history": {"column": "items"}}, other)


@pytest.mark.parametrize("name", ["din", "bst", "dcn-v2"])
def test_parts_of_a_batch_and_batches_without_rows_and_histories(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(name, history={})
    batch = World().batch(np.arange(60))
    scores = model.score(batch)
    monkeypatch.setattr("recsys_cli.models.ranking.history._MAX_ROWS", 7)
    with torch.no_grad():
        torch.testing.assert_close(model.score(batch), scores)
        alone = [model.score(batch.span(row, row + 1)) for row in range(60)]
    torch.testing.assert_close(torch.cat(alone), scores)
    assert model.score(batch.span(0, 0)).shape == (0,)
    nobody = Interactions(*(np.empty(0, np.int32),) * 2, np.empty(0, np.float32), times=np.empty(0, np.int64))
    model.set_context(TrainingContext(lambda: nobody, join))
    assert torch.isfinite(model.score(batch)).all()


@pytest.mark.parametrize("name", ["bst", "din", "fm"])
def test_histories_and_collaborative_features_go_together(name: str, world: World) -> None:
    rows = world.batch(world.train)
    plain = Batch({n: feature for n, feature in rows.features.items() if n != "time"}, rows.labels)
    context = TrainingContext(lambda: world.rows.chosen(world.train), join, lambda: iter([plain]))
    torch.manual_seed(0)
    model = build(name, {"history": {}, "collaborative": {"embedding_dim": 2, "positions": 2}}, SCHEMA)
    model.set_context(context)
    model.loss(rows).backward()
    assert torch.isfinite(model.eval().score(world.batch(world.test))).all()


def test_a_training_batch_without_times_is_refused() -> None:
    model = a_model("din").train()
    batch = World().batch(np.arange(9))
    with pytest.raises(ConfigError, match="a training batch has no column 'time'"):
        model.loss(replace(batch, features={n: f for n, f in batch.features.items() if n != "time"}))


def test_data_without_timestamps_is_refused() -> None:
    schema = Schema(columns=tuple(column for column in SCHEMA.columns if column != TIME))
    with pytest.raises(ConfigError, match=r"model\.history needs timestamps"):
        build("din", {}, schema)


def test_held_out_rows_see_other_histories_than_the_context() -> None:
    """Those of cold-start users among them, by an id of their own."""
    model = a_model("fm", history={})
    new = np.full(500, USER.cardinality + 5, np.int32)
    model.set_earlier_rows(replace(some_rows(), user_idx=new))
    batch = World().batch(np.arange(40, 50))
    named = replace(batch, features={**batch.features, HISTORY_USER: torch.from_numpy(new[:10])})
    window = model.history.window(named, training=False)
    times = batch.features["time"].tolist()
    rows = replace(some_rows(), user_idx=new)
    assert [read(window, row) for row in range(10)] == [slow_history(rows, new[0], time, 50) for time in times]
