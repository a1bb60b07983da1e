"""Names of items, their neighbors, and rows of users."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.names import IdNames, Item, find_ground_truth, newest_first, rows_of
from recsys_cli.evaluation.pointwise import ScoredItem, knows, nearest
from recsys_cli.features.schema import FIRST, NULL, UNSEEN, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData

MakePrepared = Callable[..., PreparedData]


@pytest.fixture
def data(make_prepared: MakePrepared) -> PreparedData:
    """Users 0 to 39 and items 0 to 29, encoded from 3 on; genres of odd ids are Odd, of even ones Even and Both."""
    return make_prepared()


def titles(**known: str) -> pa.Array:
    """Give titles to items, by their raw ids."""
    return pa.array([known.get(f"i{number}") for number in range(30)], pa.string())


def test_an_item_has_its_raw_id_its_title_and_its_genres(data: PreparedData) -> None:
    names = IdNames(data, titles(i0="Zero"))
    assert names.item(FIRST) == Item("0", "Zero", {"genres": ("Odd",)})
    assert names.item(FIRST + 1) == Item("1", None, {"genres": ("Even", "Both")})
    assert (names.item(FIRST).name, names.item(FIRST + 1).name) == ("Zero", "1")
    assert IdNames(data).item(FIRST + 29).title is None
    assert names.user(FIRST + 7) == "7"


def test_shared_ids_stand_for_no_value(data: PreparedData) -> None:
    names = IdNames(data, titles(i0="Zero"))
    assert (names.user(NULL), names.user(UNSEEN)) == ("null", "unseen")
    assert names.item(UNSEEN) == Item("unseen", None, {"genres": ()})


@pytest.mark.parametrize("role", [Role.USER, Role.ITEM])
def test_every_id_is_found_again(data: PreparedData, role: Role) -> None:
    names = IdNames(data)
    values = [str(value) for value in names.values(role)]
    assert [names.find(role, value) for value in values] == list(range(FIRST, FIRST + len(values)))


def test_error_of_an_unknown_number_suggests_the_nearest(data: PreparedData) -> None:
    with pytest.raises(ConfigError, match="unknown user '41'; similar: 39, 38, 37") as error:
        IdNames(data).find(Role.USER, "41")
    assert error.value.hint == "use a value of userId in the raw data: 40 are in train"


def test_error_of_an_unknown_text_suggests_similar_titles_and_ids(data: PreparedData) -> None:
    names = IdNames(data, titles(i4="Toy Story (1995)", i9="History", i11="Heat"))
    with pytest.raises(ConfigError, match=r"unknown item 'STORY'; similar: 4 \(Toy Story \(1995\)\), 9 \(History\)"):
        names.find(Role.ITEM, "STORY")
    with pytest.raises(ConfigError, match=r"unknown item 'zzz'$") as error:
        names.find(Role.ITEM, "zzz")
    assert error.value.hint == "use a value of movieId in the raw data: 30 are in train, such as 0, 1, 2"


def test_items_are_found_by_title_or_by_a_unique_part_of_it(data: PreparedData) -> None:
    names = IdNames(data, titles(i4="Toy Story (1995)", i5="Toy Story (1995) 2", i9="History", i11="Heat", i12="1984"))
    assert names.find(Role.ITEM, "toy story (1995)") == FIRST + 4
    assert names.find(Role.ITEM, "heat") == FIRST + 11
    assert names.find(Role.ITEM, "1984") == FIRST + 12
    with pytest.raises(ConfigError, match=r"unknown item '1995'; similar: 29, 28, 27$"):
        names.find(Role.ITEM, "1995")  # a number is more likely to be a wrong id


def test_error_of_a_misspelled_title_suggests_similar_ones(data: PreparedData) -> None:
    names = IdNames(data, titles(i4="Toy Story (1995)", i9="History"))
    with pytest.raises(ConfigError, match=r"unknown item 'Toy Storry \(1995\)'; similar: 4 \(Toy Story \(1995\)\)$"):
        names.find(Role.ITEM, "Toy Storry (1995)")


def test_ids_that_are_text_are_found_as_they_are_typed(data: PreparedData) -> None:
    values = [f"u{number:03}" for number in range(40)]
    pq.write_table(pa.table({"value": values, "count": [1] * 40}), data.vocabulary("userId"))
    names = IdNames(data)
    assert names.find(Role.USER, "u007") == FIRST + 7
    with pytest.raises(ConfigError, match="unknown user 'u7'; similar: u0"):
        names.find(Role.USER, "u7")


class Compass(Model):
    """Items 3, 4, 5 and so on point 0, 10, 20 and so on degrees away from north and are as long as their id."""

    scoring = "dot_product"

    def item_vectors(self, items: Tensor) -> Tensor:
        angles = torch.deg2rad((items - 3) * 10.0)
        return torch.stack([angles.cos(), angles.sin()], dim=1) * items.unsqueeze(1)

    def score(self, batch: Batch) -> Tensor:
        raise NotImplementedError


def test_nearest_items_are_those_of_the_same_direction_whatever_their_length(
    make_prepared: Callable[..., PreparedData],
) -> None:
    model, data = Compass().eval(), make_prepared()

    found = nearest(model, data, 10, k=4)

    assert knows(model, data, 10)
    assert {one.item_idx for one in found[:2]} == {9, 11}
    assert {one.item_idx for one in found[2:]} == {8, 12}
    assert found[0] == ScoredItem(found[0].item_idx, pytest.approx(np.cos(np.deg2rad(10)), abs=1e-5))


def rows(times: list[int] | None, *items: int, labels: list[float] | None = None) -> Interactions:
    ids = np.array(items, np.int32)
    when = None if times is None else np.array(times)
    liked = np.array([1] * len(ids) if labels is None else labels, np.float32)
    return Interactions(np.full(len(ids), 3, np.int32), ids, liked, None, when)


def test_rows_of_a_user_and_of_an_item_are_all_of_them(make_prepared: MakePrepared) -> None:
    data = make_prepared()
    for role, ids in ((Role.USER, range(FIRST, FIRST + 40)), (Role.ITEM, range(FIRST, FIRST + 30))):
        parts = [rows_of(data, role, each) for each in ids]
        assert all(list(part) == ["train", "valid"] for part in parts)
        assert sum(len(part["train"]) for part in parts) == data.rows("train")
        assert sum(part["valid"].positive.sum() for part in parts) == read_interactions(data, "valid").positive.sum()
    one = rows_of(data, Role.USER, 7)["train"]
    assert set(one.user_idx) == {7}
    assert (one.labels == ((one.user_idx + one.item_idx) % 2 == 0)).all()


def test_newest_come_first_over_splits_and_the_data_order_stands_without_times() -> None:
    found = {"train": rows([5, 9], 4, 5), "valid": rows([7], 6), "test": rows([99], 7)}
    assert [(one.item_idx, one.split) for one in newest_first(found, ("train", "valid"))] == [
        (5, "train"), (6, "valid"), (4, "train"),
    ]  # fmt: skip
    assert [one.item_idx for one in newest_first({"train": rows(None, 9, 4, 6)}, ("train", "valid"))] == [9, 4, 6]


@pytest.mark.parametrize(
    ("relevant", "items"),
    # 0.7 is no float32: as one it is a little less, and the least label has to be of the same kind
    [("positive", [4, 6, 8, UNSEEN]), ("all", [4, 5, 6, 8, UNSEEN]), (0.7, [4, 6, 8, UNSEEN]), (0.8, [4, 6, UNSEEN])],
)
def test_ground_truth_has_each_relevant_unseen_item_once(relevant: str | float, items: list[int]) -> None:
    test = rows(None, 4, 5, 6, 4, 7, UNSEEN, 8, labels=[1, 0, 1, 1, 1, 1, 0.7])
    train = rows(None, 7, UNSEEN)  # another item without an id

    found = find_ground_truth(
        {"train": train, "test": test},
        ("test",),
        newest_first({"train": train}, ("train",)),
        EvaluateConfig(relevance=relevant),
    )

    assert sorted(one.item_idx for one in found) == sorted(items)
    assert not find_ground_truth({"train": train}, (), [], EvaluateConfig())
    repeats = EvaluateConfig(relevance=relevant, repeats=True)
    again = find_ground_truth({"test": test}, ("test",), newest_first({"train": train}, ("train",)), repeats)
    assert sorted(one.item_idx for one in again) == sorted([*items, 7])
