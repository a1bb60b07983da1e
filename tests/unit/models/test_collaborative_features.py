"""Features of the trees, column by column, against hand-computed sums."""

from __future__ import annotations

import math

import pytest
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models.collaborative.features import CollaborativeFeatures
from recsys_cli.models.collaborative.rows import Categories, Elements, Rows, factorize, positions
from recsys_cli.models.configs.ranking import LightGBMConfig as Config
from recsys_cli.models.ranking.lightgbm import Plain


def categorical(name: str, role: Role = Role.FEATURE, *, cardinality: int, **more: object) -> Column:
    return Column(
        name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=cardinality, vocabulary=name, **more
    )


USER, ITEM = categorical("user", Role.USER, cardinality=6), categorical("item", Role.ITEM, cardinality=7)
LABEL = Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="float32")
KEYS = categorical("keys", cardinality=6, ragged=True, table="item")
SHOP = categorical("a shop", cardinality=1_000)
DAY = categorical("day", cardinality=8)
NUMBERS = Column(name="numbers", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32", ragged=True)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def lists(*rows: list[float], dtype: torch.dtype = torch.int32, weights: list[float] | None = None) -> Ragged:
    values = torch.tensor([value for row in rows for value in row], dtype=dtype)
    offsets = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    return Ragged(values, offsets, None if weights is None else torch.tensor(weights))


@pytest.mark.parametrize("dim", [1, 3, 9])
def test_factors_are_a_fixed_point_of_the_ridge_regressions(dim: int) -> None:
    """Each item's vector is the ridge regression of its values on its users' vectors, however many rows it has."""
    draw = torch.Generator().manual_seed(0)
    users = torch.randint(0, 40, (600,), generator=draw)
    items = torch.cat([torch.zeros(300, dtype=torch.int64), torch.randint(1, 50, (300,), generator=draw)])
    values = torch.randn(600, generator=draw, dtype=torch.float64)
    of_users, of_items = factorize((users, items), values, (41, 52), dim=dim, l2=2.0, rounds=3, seed=1)
    for item in range(52):
        mine = items == item
        vectors = of_users[users[mine]]
        wanted = torch.linalg.solve(vectors.T @ vectors + 2 * torch.eye(dim), vectors.T @ values[mine])
        torch.testing.assert_close(of_items[item], wanted)
    assert not of_users[40].any()


def test_factors_recover_a_low_rank_matrix() -> None:
    draw = torch.Generator().manual_seed(0)
    true_users, true_items = (torch.randn(40, 2, generator=draw, dtype=torch.float64) for _ in range(2))
    users, items = torch.randint(0, 40, (2, 1_200), generator=draw)
    values = (true_users[users] * true_items[items]).sum(1)
    of_users, of_items = factorize((users, items), values, (40, 40), dim=2, l2=1e-3, rounds=30, seed=0)
    torch.testing.assert_close(of_users @ of_items.T, true_users @ true_items.T, atol=0.02, rtol=0)


def test_factors_do_not_depend_on_the_group_size(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    users, items = torch.randint(0, 40, (2, 500), generator=draw)
    values = torch.randn(500, generator=draw, dtype=torch.float64)
    found = [factorize((users, items), values, (40, 40), dim=4, l2=1.0, rounds=4, seed=0)]
    monkeypatch.setattr("recsys_cli.models.collaborative.rows._MAX_ROWS", 20)
    found.append(factorize((users, items), values, (40, 40), dim=4, l2=1.0, rounds=4, seed=0))
    torch.testing.assert_close(found[0], found[1])


def test_statistics_of_ids_are_smoothed_means() -> None:
    schema = Schema(columns=(USER, ITEM, KEYS, LABEL))
    config = Config(smoothing=2.0, embedding_dim=2)
    categories = Categories(schema, config.max_categories)
    features = {"user": ints(3, 3, 4), "item": ints(5, 6, 5), "keys": lists([3, 4], [4], [3, 4])}
    rows = Rows.of(Batch(features, {"label": torch.tensor([1.0, 1.0, 0.0])}), schema, categories)
    fitted = CollaborativeFeatures(config, schema, categories)
    fitted.fit(rows, seed=0)
    assert fitted.rows_of_user.tolist() == [0, 0, 0, 2, 1, 0]
    assert fitted.rows_of_item.tolist() == [0, 0, 0, 0, 0, 2, 1]
    assert fitted.mean.tolist() == pytest.approx([2 / 3])
    assert fitted.user_mean[0].tolist() == pytest.approx([0, 0, 0, (2 / 3) / 4, (-2 / 3) / 3, 0])
    left = [1 / 3 - fitted.user_bias[0, u] - fitted.item_bias[0, i] for u, i in ((3, 5), (3, 6))]
    left.append(-2 / 3 - fitted.user_bias[0, 4] - fitted.item_bias[0, 5])
    assert float(fitted.category_mean[0, 4]) == pytest.approx(float(sum(left)) / 5, abs=1e-6)
    assert float(fitted.user_taste[0, 3, 3]) == pytest.approx(float(left[0]) / 3, abs=1e-6)
    assert float(fitted.user_taste[0, 3, 4]) == pytest.approx(float(left[0] + left[1]) / 4, abs=1e-6)
    # The bias of an item is what its users' biases leave, and the other way round.
    assert float(fitted.item_bias[0, 6]) == pytest.approx((1 / 3 - float(fitted.user_bias[0, 3])) / 3, abs=1e-3)


def test_without_rows_all_statistics_are_zero() -> None:
    schema = Schema(columns=(USER, ITEM, KEYS, LABEL))
    categories = Categories(schema, 64)
    batch = Batch({"user": ints(3), "item": ints(5), "keys": lists([3])}, {"label": torch.tensor([1.0])})
    rows = Rows.of(batch, schema, categories)
    fitted = CollaborativeFeatures(Config(), schema, categories)
    fitted.fit(rows.select(torch.tensor([False])), seed=0)
    assert not fitted.columns(rows).any()


def test_categories_follow_their_rows_through_concat_and_select() -> None:
    schema = Schema(columns=(USER, ITEM, SHOP, KEYS, DAY))
    categories = Categories(schema, 64)
    assert [column.name for column in categories.columns] == ["day", "keys", "a shop"]
    assert categories.starts == [0, 8, 14, 1_014]

    def rows(day: int, shop: int, keys: Ragged) -> Rows:
        features = {"user": ints(day), "item": ints(4), "day": ints(day), "a shop": ints(shop), "keys": keys}
        return Rows.of(Batch(features, {}), schema, categories)

    joined = Rows.concat([rows(3, 700, lists([3, 0, 5], weights=[0.5, 9, 2])), rows(4, 2, lists([]))])
    joined = Rows.concat([joined, rows(5, 3, lists([4]))])
    chosen = joined.select(torch.tensor([True, False, True]))
    assert chosen.users.tolist() == [3, 5]
    elements = chosen.elements
    found = sorted(zip(elements.row.tolist(), elements.category.tolist(), elements.weight.tolist(), strict=True))
    assert found == [(0, 3, 1), (0, 11, 0.5), (0, 13, 2), (0, 714, 1), (1, 5, 1), (1, 12, 1), (1, 17, 1)]


def test_plain_columns_are_ids_numbers_and_counts() -> None:
    schema = Schema(columns=(USER, ITEM, SHOP, KEYS, DAY, NUMBERS))
    categories = Categories(schema, 64)
    features = {
        "user": ints(3, 4), "item": ints(3, 4), "day": ints(7, 1), "a shop": ints(700, 3),
        "keys": lists([3, 3, 5], [0], weights=[1.0, 2.0, 0.5, 1.0]),
        "numbers": lists([1.0, 2.0], [], dtype=torch.float32),
    }  # fmt: skip
    batch = Batch(features, {})
    plain = Plain(schema, categories)
    assert plain.single == ["day"]
    found = plain.columns(batch, Elements.of(batch, categories)).tolist()
    assert found[0] == [7, 1.5, 0, 0, 0, 3, 0, 0.5]
    assert found[1][0] == 1
    assert math.isnan(found[1][1])
    assert found[1][2:] == [0] * 6


def test_users_with_common_items_have_the_same_position() -> None:
    """Two groups without common interactions, and unused ids: similarity 1 within a group, 0 between groups."""
    users = torch.arange(20).repeat_interleave(10)
    items = users // 10 * 10 + torch.arange(10).repeat(20)
    of_users, of_items = positions((users, items), (21, 20), dim=2, seed=0)
    for found in (of_users[:20], of_items):
        together = (torch.arange(20)[:, None] // 10 == torch.arange(20) // 10).double()
        torch.testing.assert_close(found @ found.T, together, atol=1e-3, rtol=0)
    assert not of_users[20].any()
    twice = positions((users.repeat(2), items.repeat(2)), (21, 20), dim=2, seed=1)[1]
    torch.testing.assert_close(twice @ twice.T, of_items @ of_items.T, atol=1e-6, rtol=0)


def test_positions_are_the_singular_vectors() -> None:
    draw = torch.Generator().manual_seed(0)
    met = torch.rand(30, 12, generator=draw) < 0.3
    users, items = met.nonzero(as_tuple=True)
    _, found = positions((users, items), (30, 12), dim=3, seed=0)
    matrix = met.double() / (1 + met.sum(1, keepdim=True)).sqrt()
    _, values, right = torch.linalg.svd(matrix, full_matrices=False)
    wanted = right[:3].T * values[:3]
    wanted = wanted / wanted.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found @ found.T, wanted @ wanted.T, atol=1e-3, rtol=0)


def test_positions_may_be_wider_than_the_number_of_ids() -> None:
    of_users, of_items = positions((torch.tensor([3, 4]), torch.tensor([3, 3])), (5, 4), dim=9, seed=0)
    assert (of_users.shape, of_items.shape) == ((5, 9), (4, 9))
    assert torch.isfinite(of_users).all()
    assert float(of_users[3] @ of_users[4]) == pytest.approx(1, abs=1e-3)
