"""Popularity with half-life, window and favorites, on hand-made rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import Model, TrainingContext
from tests.unit.models.matrix_fixtures import ids

GENRES = Column(
    name="genres", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=6, vocabulary="g", ragged=True
)
DECADE = GENRES.model_copy(update={"name": "decade", "ragged": False})
YEAR = Column(name="year", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32")
SCHEMA = Schema(columns=(ids("user", Role.USER, 3), ids("item", Role.ITEM, 5), GENRES, DECADE, YEAR))
# Item 3 was met three times, long ago; item 4 twice, then item 5 once, just now.
ROWS = Interactions(
    np.array([3, 4, 5, 3, 4, 3], np.int32),
    np.array([3, 3, 3, 4, 4, 5], np.int32),
    np.array([1, 1, 0, 0, 0, 1], np.float32),
    times=np.array([0, 0, 0, 900, 1000, 1000]),
)
LISTS = [[], [], [], [3], [4], [3, 4], [4, 2], [5]]  # of the items 0, 1, …; genre 2 is one that train does not have


def join(features: dict[str, torch.Tensor]) -> dict[str, object]:
    lists = [LISTS[item] for item in features["item"].tolist()]
    offsets = torch.tensor([0, *[len(one) for one in lists]]).cumsum(0)
    first = torch.tensor([one[0] if one else 1 for one in lists], dtype=torch.int32)
    return {
        **features,
        "genres": Ragged(torch.tensor([value for one in lists for value in one], dtype=torch.int32), offsets),
        "decade": first,
    }


def fitted(rows: Interactions = ROWS, *, later: Interactions | None = None, **options: object) -> Model:
    model = build("popularity", options, SCHEMA)
    model.fit(TrainingContext(lambda: rows, join))
    model.set_context(TrainingContext(lambda: rows if later is None else later, join))
    return model


def scores(model: Model) -> list[list[float]]:
    """Scores of the users 3, 4, 5 for the items 3, …, 7; pairwise scores are equal."""
    users, items = torch.arange(3, 6), torch.arange(3, 8)
    found = model.scores(users, items)
    pairs = Batch({"user": users.repeat_interleave(5).int(), "item": items.repeat(3).int()}, {})
    assert torch.equal(model.score(pairs).view(3, 5), found)
    return found.tolist()


def test_every_row_counts_once() -> None:
    assert scores(fitted()) == [[3, 2, 1, 0, 0]] * 3


def test_positive_only_ignores_label_0() -> None:
    assert scores(fitted(positive_only=True)) == [[2, 0, 1, 0, 0]] * 3


def test_old_rows_count_less_by_their_half_life() -> None:
    assert scores(fitted(half_life=100))[0] == pytest.approx([3 * 2**-10, 1.5, 1, 0, 0])


def test_rows_before_the_window_do_not_count() -> None:
    assert scores(fitted(window=100))[0] == [0, 2, 1, 0, 0]
    assert scores(fitted(window=99))[0] == [0, 1, 1, 0, 0]


def test_half_life_needs_times() -> None:
    rows = Interactions(ROWS.user_idx, ROWS.item_idx, ROWS.labels)
    with pytest.raises(
        ConfigError, match=r"model\.half_life and model\.window need times, and the prepared data has none"
    ):
        fitted(rows, half_life=100)


def test_items_with_a_favorite_value_rank_first_each_group_by_popularity() -> None:
    found = scores(fitted(within="genres", num_favorites=1))

    # Users 3 and 4 have met genres 3 and 4 alike, of which 3 is the lower id; user 5 has met genre 3 alone.
    assert found == [pytest.approx([4, 2 / 4, 2, 0, 0])] * 3


def test_favorites_follow_the_longer_history() -> None:
    later = Interactions(np.array([5, 5], np.int32), np.array([6, 7], np.int32), np.ones(2, np.float32))

    found = scores(fitted(within="genres", num_favorites=1, later=ROWS + later))

    assert found[2] == pytest.approx([4, 2 / 4, 2, 0, 0])  # three genres once each
    twice = scores(fitted(within="genres", num_favorites=1, later=ROWS + later + later))[2]
    assert twice == found[2]  # what was met twice counts once
    assert scores(fitted(within="genres", num_favorites=2, later=ROWS + later))[2] == pytest.approx([4, 3, 2, 1, 0])


def test_a_user_without_history_gets_plain_popularity() -> None:
    nothing = Interactions(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))

    assert scores(fitted(within="genres", later=nothing)) == [pytest.approx([3 / 4, 2 / 4, 1 / 4, 0, 0])] * 3


def test_a_single_value_is_a_list_of_one() -> None:
    # Decades are the first genres: 3, 4, 3 of the items that were met.
    assert scores(fitted(within="decade", num_favorites=1))[0] == pytest.approx([4, 2 / 4, 2, 0, 0])


def test_own_items_rank_first_by_their_rows_then_by_popularity() -> None:
    later = Interactions(np.array([3, 3, 5], np.int32), np.array([5, 7, 7], np.int32), np.ones(3, np.float32))

    found = scores(fitted(own_first=True, later=ROWS + later))

    share = [3 / 5, 2 / 5, 1 / 5, 0, 0]
    assert found[0] == pytest.approx([1 + share[0], 1 + share[1], 2 + share[2], 0, 1])
    assert found[1] == pytest.approx([1 + share[0], 1 + share[1], share[2], 0, 0])
    assert found[2] == pytest.approx([1 + share[0], share[1], share[2], 0, 1])
    nothing = Interactions(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
    assert scores(fitted(own_first=True, later=nothing)) == [pytest.approx(share)] * 3
    late = scores(fitted(own_first=True, half_life=100))
    assert [late[0][:3], late[1][:2]] == [[1, 10, 11], [1, 11]]  # of times 0, 900 and 1,000
    positive = scores(fitted(own_first=True, positive_only=True))[2]
    assert positive == pytest.approx([2 / 4, 0, 1 / 4, 0, 0])  # no positive row of its own
    weights = np.array([1.25, 1, 9, 1.5, 1, 1], np.float32)  # the popular item 3 has the lower sum of user 3
    assert scores(fitted(own_first=True, rows=replace(ROWS, weights=weights)))[0][:3] == [1.25, 1.5, 1]


@pytest.mark.parametrize("column", ["year", "item"])
def test_values_have_to_be_those_of_a_categorical_feature(column: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.within is {column}, which is no categorical feature"):
        fitted(within=column)


def test_values_have_to_be_those_of_items() -> None:
    model = build("popularity", {"within": "genres"}, SCHEMA)
    with pytest.raises(ConfigError, match=r"model\.within is genres, which is no feature of item"):
        model.set_context(TrainingContext(lambda: ROWS, dict))
