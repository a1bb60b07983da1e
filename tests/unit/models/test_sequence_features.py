"""Features of items and times of interactions in sequence models: the sums by hand, causality, gradients, errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST, UNSEEN, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.sequence.histories import Windows
from recsys_cli.models.sequence.model import ItemFeatures, SequenceModel, TimeFeatures

USERS, ITEMS, COLD, DIM, STEPS = 12, 20, 3, 8, 6
NAMES = ["sasrec", "gru4rec", "hstu", "bert4rec"]
START = 1_577_664_000
"""Monday, 2019-12-30."""
KEYS = (
    Column(name="user", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=USERS + FIRST, vocabulary="u"),
    Column(name="item", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=ITEMS + FIRST, vocabulary="i"),
    Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
)  # fmt: skip
TIME = Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64")


def feature(name: str, *, size: int | None = None, **fields: Any) -> Column:
    kind = Kind.NUMERIC if size is None else Kind.CATEGORICAL
    ids = {} if size is None else {"cardinality": size + FIRST, "vocabulary": name}
    return Column(
        name=name, role=Role.FEATURE, kind=kind, dtype="float32" if size is None else "int32", **ids, **fields
    )


FEATURES = (
    feature("brand", size=4, table="item"),
    feature("tags", size=5, table="item", ragged=True),
    feature("price", table="item"),
    feature("vector", table="item", ragged=True, lengths=(0, 3)),
)
SCHEMA = Schema(columns=(*KEYS, TIME, *FEATURES, feature("hour", size=24)))
BRAND = FIRST + np.arange(ITEMS + COLD) % 4
TAGS = [[FIRST + (number + step) % 5 for step in range(number % 3)] for number in range(ITEMS + COLD)]
PRICE = np.linspace(-1, 1, ITEMS + COLD, dtype=np.float32)
VECTORS = [[] if number % 7 == 0 else [float(number), 2.0, -1.0] for number in range(ITEMS + COLD)]


def ragged(lists: list[list[Any]], dtype: torch.dtype) -> Ragged:
    offsets = torch.tensor([0, *(len(one) for one in lists)]).cumsum(0)
    return Ragged(torch.tensor([value for one in lists for value in one], dtype=dtype), offsets)


def join(ids: Mapping[str, Tensor]) -> dict[str, Feature]:
    """Features of table rows; the last rows are cold items with the shared id."""
    features: dict[str, Feature] = dict(ids)
    if "item" in ids:
        rows = ids["item"].long()
        own = [int(row) - FIRST for row in rows]
        features["item"] = torch.where(rows < ITEMS + FIRST, rows, UNSEEN)
        features["brand"] = torch.tensor([int(BRAND[row]) if row >= 0 else UNSEEN for row in own])
        features["tags"] = ragged([TAGS[row] if row >= 0 else [] for row in own], torch.int64)
        features["price"] = torch.tensor([float(PRICE[row]) if row >= 0 else 0.0 for row in own])
        features["vector"] = ragged([VECTORS[row] if row >= 0 else [] for row in own], torch.float32)
    return features


def interactions(*, times: np.ndarray[Any, Any] | None = None) -> Interactions:
    users, steps = (part.ravel() for part in np.meshgrid(np.arange(USERS), np.arange(STEPS), indexing="ij"))
    items = FIRST + (users * 3 + steps * 7) % ITEMS
    when = START + steps * 50_000 + users * 1_000 if times is None else times
    return Interactions(
        (users + FIRST).astype(np.int32), items.astype(np.int32), np.ones(len(users), np.float32), times=when
    )


def a_model(name: str, *, schema: Schema = SCHEMA, sparse: bool = False, **options: Any) -> SequenceModel:
    torch.manual_seed(0)
    model = build(name, {"embedding_dim": DIM, "max_seq_len": 5, "dropout": 0.0, **options}, schema, sparse=sparse)
    assert isinstance(model, SequenceModel)
    rows = interactions()
    model.set_context(TrainingContext(lambda: rows, join))
    return model


def by_hand(model: SequenceModel, row: int) -> np.ndarray[Any, Any]:
    """The vector of a table row, feature by feature."""
    tables = {name: model.items.table(name).detach().numpy() for name in model.items.names}
    number = row - FIRST
    vector = tables["item"][row if number < ITEMS else UNSEEN] + tables["brand"][BRAND[number]]
    if TAGS[number]:
        vector = vector + np.mean([tables["tags"][tag] for tag in TAGS[number]], axis=0)
    given = np.array(VECTORS[number] or [0.0] * 3)
    length = math.sqrt(float(given @ given)) or 1.0
    assert model.features is not None
    assert model.features.projection is not None
    weight = model.features.projection.weight.detach().numpy()
    return np.asarray(vector + weight @ np.array([PRICE[number], *(given / length)]))


@pytest.mark.parametrize("name", NAMES)
def test_an_item_is_the_sum_of_its_id_and_its_features(name: str) -> None:
    model = a_model(name, item_features="all").eval()
    rows = torch.tensor([FIRST + ITEMS + 2, *range(FIRST, FIRST + ITEMS + COLD), FIRST])
    expected = torch.tensor(np.stack([by_hand(model, int(row)) for row in rows]), dtype=torch.float32)
    with torch.inference_mode():
        torch.testing.assert_close(model.item_vectors(rows), expected)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_targets_and_candidates_have_one_vector(name: str) -> None:
    """The loss of a step is that of a model whose table of ids has the sums."""
    model = a_model(name, item_features="all", num_negatives="all").eval()
    plain = a_model(name, num_negatives="all").eval()
    shared = {key: value for key, value in model.state_dict().items() if key in plain.state_dict()}
    plain.load_state_dict(shared)
    items = torch.arange(FIRST, FIRST + ITEMS)
    batch = Batch({"user": torch.arange(USERS) + FIRST}, {"label": torch.ones(USERS)})
    with torch.no_grad():
        plain.items.write_rows("item", items, model.item_vectors(items))
        torch.manual_seed(1)
        expected = plain.loss(batch)
        torch.manual_seed(1)
        torch.testing.assert_close(model.loss(batch), expected)
        users = batch.features["user"]
        torch.testing.assert_close(model.scores(users, items), plain.scores(users, items))
        pairs = join({"item": items[:USERS]})
        rows = Batch({**pairs, "user": users}, {})
        torch.testing.assert_close(model.score(rows), model.scores(users, items[:USERS]).diag())


def test_an_item_in_a_row_has_the_features_of_the_row() -> None:
    """A row of a cold item has the shared id, and features of its own; so the row's features count, not those of the id."""
    model = a_model("sasrec", item_features=["brand", "vector"]).eval()
    cold = torch.tensor([FIRST + ITEMS, FIRST + ITEMS + 1])
    users = torch.tensor([3, 4])
    with torch.no_grad():
        found = model.score(Batch({**join({"item": cold}), "user": users}, {}))
        torch.testing.assert_close(found, model.scores(users, cold).diag())
        assert not torch.allclose(*model.item_vectors(cold))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_part_gets_one_gradient(name: str, sparse: bool) -> None:
    options = {"item_features": "all", "time_features": ["hour_of_day", "day_of_week"]}
    model, asked = a_model(name, sparse=sparse, **options), []
    inner = model.join
    model.join = lambda ids: asked.append(ids["item"]) or inner(ids)
    model.loss(Batch({"user": torch.arange(USERS) + FIRST}, {"label": torch.ones(USERS)})).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert torch.count_nonzero(parameter.grad.to_dense()) > 0, key
    for table in model.items.names:
        gradient = model.items.table(table).grad
        assert gradient.is_sparse == sparse
        assert not gradient.to_dense()[0].any()
    assert len(asked) == 1  # one lookup of inputs, targets and negatives, each item once
    assert len(asked[0]) == len(set(asked[0].tolist()))


def test_tables_on_the_host_have_the_same_vectors() -> None:
    torch.manual_seed(0)
    model = build(
        "sasrec", {"embedding_dim": DIM, "max_seq_len": 5, "item_features": "all"}, SCHEMA, placement="host"
    ).eval()
    model.set_context(TrainingContext(interactions, join))
    rows = torch.arange(FIRST, FIRST + ITEMS + COLD)
    expected = a_model("sasrec", item_features="all").eval()
    with torch.inference_mode():
        torch.testing.assert_close(model.item_vectors(rows), expected.item_vectors(rows))


def test_without_options_nothing_is_added() -> None:
    model = a_model("sasrec")
    assert (model.features, model.periods, model.by_content) == (None, None, False)
    assert model.items.names == ("item",)
    assert model.histories.times is None


def test_a_weighted_list_is_a_weighted_sum() -> None:
    torch.manual_seed(0)
    model = a_model("sasrec", item_features=["tags"])
    assert isinstance(model.features, ItemFeatures)
    tags = Ragged(torch.tensor([3, 4, 5]), torch.tensor([0, 2, 3]), torch.tensor([0.5, 2.0, -1.0]))
    features = {"item": torch.tensor([3, 4]), "tags": tags}
    found = model.features(torch.zeros(2, DIM), features, model.items.lookups(Batch(features, {})))
    table = model.items.table("tags")
    torch.testing.assert_close(found, torch.stack([0.5 * table[3] + 2 * table[4], -table[5]]))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["brnad"], "no feature 'brnad' of item .did you mean brand"),
        (["hour"], "no feature 'hour' of item"),
        (["item"], "no feature 'item' of item"),
    ],
)
def test_a_feature_that_is_none_of_items_is_refused(wanted: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as found:
        a_model("sasrec", item_features=wanted)
    assert found.value.hint == "the features of item are brand, tags, price, vector"


@pytest.mark.parametrize("wanted", ["all", ["brand"]])
def test_data_without_features_of_items_is_refused(wanted: Any) -> None:
    with pytest.raises(ConfigError, match="the prepared data has no features of item in a table of their own") as found:
        a_model("gru4rec", schema=Schema(columns=(*KEYS, TIME, feature("hour", size=24))), item_features=wanted)
    assert "JoinExternal" in str(found.value.hint)


def test_lists_of_numbers_that_are_no_vectors_are_refused() -> None:
    prices = feature("prices", table="item", ragged=True)
    with pytest.raises(ConfigError, match="does not support lists of numbers: prices"):
        a_model("sasrec", schema=Schema(columns=(*SCHEMA.columns, prices)), item_features="all")
    assert a_model("sasrec", schema=Schema(columns=(*SCHEMA.columns, prices)), item_features=["brand"]).by_content


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "ticks"), [(None, 1), ("s", 1), ("ms", 10**3), ("ns", 10**9)])
def test_times_are_waves_of_the_hour_and_the_day(unit: Any, ticks: int) -> None:
    """Six and a half hours into a Thursday, the first day of 1970."""
    periods = TimeFeatures(["hour_of_day", "day_of_week"], 4, TIME.model_copy(update={"unit": unit}))
    seconds = 2_600 * 7 * 86_400 + 6.5 * 3_600
    waves = []
    for part in (6.5 / 24, 6.5 / 24 / 7):
        for wave in (math.sin, math.cos):
            waves += [wave(2 * math.pi * harmonic * part) for harmonic in (1, 2, 3)]
    expected = periods.projection.weight @ torch.tensor(waves)
    found = periods(torch.tensor([[seconds * ticks, 7.0]], dtype=torch.float64))
    torch.testing.assert_close(found[0, 0], expected, rtol=1e-4, atol=1e-6)
    assert not found[0, 1].any()  # no time


@pytest.mark.parametrize("name", NAMES)
def test_the_time_of_a_target_does_not_reach_its_prediction(name: str) -> None:
    model: Any = a_model(name, time_features=["hour_of_day", "day_of_week"], mask_share=0.5) if name == "bert4rec" else (
        a_model(name, time_features=["hour_of_day", "day_of_week"])
    )  # fmt: skip
    torch.nn.init.normal_(model.periods.projection.weight)
    windows = model.eval().histories.last(torch.arange(USERS) + FIRST, model.window)

    def predictions(times: Tensor) -> tuple[Tensor, Tensor]:
        torch.manual_seed(5)  # of the masks
        shown = replace(windows, times=times)
        assert isinstance(shown, Windows)
        targets, found = model.predict(shown, model.window_vectors(shown))
        return targets.nonzero(), found

    with torch.inference_mode():
        places, before = predictions(windows.times)
        ends = windows.layout.offsets[1:][windows.layout.rows].tolist()
        for number, place in enumerate(places.squeeze(1).tolist()):
            later = windows.times.clone()
            stop = place + 1 if name == "bert4rec" else ends[place]  # it reads both sides: the target's own time alone
            later[place:stop] += 7_777.0
            torch.testing.assert_close(predictions(later)[1][number], before[number])
        earlier = windows.times.clone()
        earlier[windows.layout.offsets[:-1]] += 7_777.0
        assert not torch.allclose(predictions(earlier)[1], before, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_users_follow_from_the_times_of_their_histories(name: str) -> None:
    model = a_model(name, time_features=["hour_of_day"]).eval()
    assert model.periods is not None
    torch.nn.init.normal_(model.periods.projection.weight)
    users = torch.arange(USERS) + FIRST

    def vectors(shift: int) -> Tensor:
        rows = interactions()
        model.set_context(TrainingContext(lambda: replace(rows, times=rows.times + shift), join))
        with torch.inference_mode():
            return model.user_vectors(users)

    torch.testing.assert_close(vectors(86_400 * 3), vectors(0), rtol=1e-4, atol=1e-4)  # the same hours
    assert not torch.allclose(vectors(6 * 3_600), vectors(0), atol=1e-3)


@pytest.mark.parametrize("unit", [None, "ms"])
def test_positions_are_no_times(unit: Any) -> None:
    schema = Schema(columns=(*KEYS, TIME.model_copy(update={"unit": unit})))
    rows = interactions(times=np.tile(np.arange(STEPS), USERS))
    model = build("sasrec", {"time_features": ["hour_of_day"]}, schema)
    message = f"time has no times: most values are not between 1980 and 2100 in {unit or 's'} since 1970"
    with pytest.raises(ConfigError, match=message) as found:
        model.set_context(TrainingContext(lambda: rows, dict))
    assert "dataset.interactions.times={time: ms}" in str(found.value.hint)
    model.eval().set_context(TrainingContext(lambda: rows, dict))  # the history of a request has places for times
    with torch.inference_mode():
        assert torch.isfinite(model.user_vectors(torch.arange(USERS) + FIRST)).all()
