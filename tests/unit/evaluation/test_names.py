"""Encoded ids and what people call them, there and back."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.names import IdNames, Item
from recsys_cli.features.schema import FIRST, NULL, UNSEEN, Role
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
