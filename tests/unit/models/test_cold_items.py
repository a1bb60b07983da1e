"""The projection of cold items against fits item by item, and cold slots against lists made by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.batch import Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models import build
from recsys_cli.models.cold_items import _PENALTIES, ColdItemProjection
from recsys_cli.models.top_lists import fill_cold_slots
from tests.planted import SCHEMA

ITEMS, COLD, WIDTH, TAGS = 40, 5, 3, 4
OF_ITEM = [
    Column(name="vector", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32", ragged=True, lengths=(0, WIDTH), table="item"),
    Column(name="price", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32", table="item"),
    Column(name="tags", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", ragged=True, cardinality=3 + TAGS,
           vocabulary="tags", table="item"),
    Column(name="brand", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=5, vocabulary="brand", table="item"),
]  # fmt: skip
SCHEMA_WITH_ITEMS = Schema(columns=(*SCHEMA.columns, *OF_ITEM))


class Items:
    """Features of items, some missing, and the inputs of a regression made of them one by one."""

    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        rows = 3 + ITEMS + COLD
        self.vectors = [None if row % 7 == 0 else draw.normal(size=WIDTH).astype(np.float32) for row in range(rows)]
        self.prices = np.where(np.arange(rows) % 5 == 0, np.nan, draw.normal(size=rows)).astype(np.float32)
        self.tags = [draw.choice(np.arange(2, 3 + TAGS), size=draw.integers(0, 4), replace=False) for _ in range(rows)]
        self.brands = draw.integers(1, 5, size=rows)

    def join(self, ids):
        rows = ids["item"].tolist()
        vectors = [[] if self.vectors[row] is None else self.vectors[row].tolist() for row in rows]
        return {
            "item": ids["item"],
            "vector": Ragged(torch.tensor([one for vector in vectors for one in vector]),
                             torch.tensor([0, *np.cumsum([len(one) for one in vectors])])),
            "price": torch.from_numpy(self.prices[rows]),
            "tags": Ragged(torch.tensor([tag for row in rows for tag in self.tags[row]], dtype=torch.int32),
                           torch.tensor([0, *np.cumsum([len(self.tags[row]) for row in rows])])),
            "brand": torch.from_numpy(self.brands[rows].astype(np.int32)),
        }  # fmt: skip

    def inputs(self, row):
        parts = [
            self.vectors[row] if self.vectors[row] is not None else np.zeros(WIDTH),
            [np.nan_to_num(self.prices[row])],
        ]
        for ids, width in ((self.tags[row], TAGS), ([self.brands[row]], 2)):
            hot = np.zeros(width)
            hot[[one - 3 for one in ids if one >= 3]] = 1
            parts.append(hot)
        lengths = [np.linalg.norm(part) or 1.0 for part in parts]
        return np.concatenate([parts[0] / lengths[0], parts[1], parts[2] / lengths[2], parts[3] / lengths[3]])


def ridge(x, y, penalty):
    """Return the prediction of a fit with an intercept that is not penalized."""
    center, mean = x.mean(0), y.mean(0)
    weight = np.linalg.solve((x - center).T @ (x - center) + penalty * np.eye(x.shape[1]), (x - center).T @ (y - mean))
    return lambda row: (row - center) @ weight + mean


@pytest.fixture
def model():
    torch.manual_seed(0)
    return build("mf", {"cold_items": "all", "embedding_dim": 6}, SCHEMA_WITH_ITEMS).eval()


def test_projection_is_the_ridge_fit_whose_penalty_leaves_each_item_out(model):
    items = Items()
    with torch.no_grad():
        table = model.embeddings.table("item")
        table.copy_(torch.randn(table.shape) * 0.3)
        table[3:, :2] += torch.tensor(np.stack([items.inputs(row)[:2] for row in range(3, len(table))])).float()
    projection = ColdItemProjection(model, model.item, items.join, torch.device("cpu"))

    rows = list(model.item.own_ids)
    x = np.stack([items.inputs(row) for row in rows])
    y = model.item_vectors(torch.tensor(rows)).detach().double().numpy()
    others = [np.arange(len(rows)) != left_out for left_out in range(len(rows))]
    errors = [
        sum(((ridge(x[rest], y[rest], one)(x[~rest]) - y[~rest]) ** 2).sum() for rest in others) for one in _PENALTIES
    ]
    assert projection.penalty == _PENALTIES[int(np.argmin(errors))]
    assert _PENALTIES[0] < projection.penalty < _PENALTIES[-1]
    cold = torch.arange(3 + ITEMS, 3 + ITEMS + COLD)
    expected = [ridge(x, y, projection.penalty)(items.inputs(row)) for row in cold.tolist()]
    np.testing.assert_allclose(projection(cold, items.join).numpy(), expected, atol=1e-5)


def test_too_many_categories_are_refused_before_they_are_allocated(model):
    model.cold_columns = (OF_ITEM[3].model_copy(update={"cardinality": 10**9}),)
    with pytest.raises(ConfigError, match=r"model.cold_items: 1,000,000,000 numbers and categories"):
        ColdItemProjection(model, model.item, Items().join, torch.device("cpu"))


def test_only_item_features_by_name_are_taken():
    assert build("mf", {"cold_items": ["price"]}, SCHEMA_WITH_ITEMS).cold_columns == (OF_ITEM[1],)
    assert not build("mf", {}, SCHEMA_WITH_ITEMS).ranks_cold_items
    with pytest.raises(ConfigError, match=r"model.cold_items: no feature 'prize' of item \(did you mean price"):
        build("mf", {"cold_items": ["prize"]}, SCHEMA_WITH_ITEMS)
    with pytest.raises(ConfigError, match=r"model.cold_items: the prepared data has no features of item"):
        build("lightgcn", {"cold_items": "all"}, SCHEMA)


@given(st.data())
def test_slots_hold_the_best_cold_items_and_change_nothing_before(data):
    num = data.draw(st.integers(1, 12))
    is_cold = torch.tensor(data.draw(st.lists(st.booleans(), min_size=num, max_size=num)))
    own = data.draw(st.permutations(range(-num, num)))[:num]
    hidden = torch.tensor(data.draw(st.lists(st.booleans(), min_size=num, max_size=num)))
    scores = torch.tensor([own]).float().masked_fill(hidden, -torch.inf)
    k, slots = data.draw(st.integers(1, num)), data.draw(st.integers(0, num + 1))

    def top(of):
        return [one for one in of.argsort(descending=True, stable=True).tolist()[:k] if of[one] > -torch.inf]

    before, cold = (
        top(scores[0]),
        [one for one in np.argsort(-np.array(own), kind="stable") if is_cold[one] and not hidden[one]],
    )
    after = scores.clone()
    fill_cold_slots(after, is_cold, slots=slots, k=k)
    found = top(after[0])

    assert sum(bool(is_cold[one]) for one in found) >= min(slots, k, len(cold))
    assert len(found) == len(before)
    in_list = [one for one in found if is_cold[one]]
    assert in_list == cold[: len(in_list)]
    warm = [one for one in found if not is_cold[one]]
    assert warm == [one for one in before if not is_cold[one]][: len(warm)]
    assert found[: max(k - slots, 0)] == before[: max(k - slots, 0)]
    changed = (after != scores)[0].nonzero().flatten().tolist()
    assert set(changed) <= set(cold[:slots])
