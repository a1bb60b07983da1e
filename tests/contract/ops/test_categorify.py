"""Categorify's options: what they leave out, share, take as given and spread over buckets, on every engine."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import COUNTS, REST
from recsys_cli.features.hashing import below, hash_values
from recsys_cli.features.schema import FIRST
from recsys_cli.ops import Categorify, JoinExternal
from recsys_cli.ops.fitted_plan import FittedPlan
from tests.engines import NAN, PARTICIPANTS, Answer, answer, every_participant, interactions, needs_all, plan
from tests.strategies import Case, cases

TRAIN = interactions({
    "user": [1, 1, 1, 2, 2, 3, 3],
    "item": pa.array([10, 20, 10, 30, None, 20, 10], pa.int32()),
    "city": ["oslo", "bergen", "oslo", "a town of a long name", None, "oslo", "bergen"],
    "tags": pa.array([["x", "y"], [], None, ["x", None], ["z"], ["x"], ["y"]]),
    "next": pa.array([[20, 10], [], None, [99, None], [10], [20], [20]], pa.list_(pa.int64())),
    "rating": [1.0] * 7,
})  # fmt: skip
VALID = interactions({
    "user": [1, 9, None],
    "item": pa.array([30, 99, 20], pa.int32()),
    "city": ["stavanger", "a town of a long name", "oslo"],
    "tags": pa.array([["q", "x"], None, ["z"]]),
    "next": pa.array([[30, 99], [7], []], pa.list_(pa.int64())),
    "rating": [1.0] * 3,
})  # fmt: skip
ITEMS = pa.table(
    {"item": [10, 20, 30, 99], "genre": ["drama", "comedy", "drama", "western"], "city": ["a", "b", "c", "d"]}
)
KEYS = Categorify(columns=("user", "item"))


def made(name: str, folder: Path, *ops: Any, **splits: pa.Table) -> Answer:
    """Send the interactions above, or others, through some ops."""
    return answer(name, Case({"train": TRAIN, "valid": VALID} | splits, {"items": ITEMS}, plan(*ops)), folder)


def rest(fitted: FittedPlan, column: str) -> tuple[int, int]:
    """Return how many train values are null and unseen."""
    table = next(table for (_, name), table in fitted.state.items() if name == column + REST)
    return table["null"][0].as_py(), table["unseen"][0].as_py()


def bucket(value: Any, num_buckets: int, kind: pa.DataType | None = None) -> int:
    return int(below(hash_values(pa.array([value], kind)), num_buckets)[0])


def copies(table: pa.Table) -> pa.Table:
    """Return interactions with `city` and `tags` once more for each op that encodes them in its own way."""
    for column in ("city", "tags"):
        for suffix in ("_max", "_hashed", "_both"):
            table = table.append_column(column + suffix, table.column(column))
    return table


OPS = (
    KEYS,
    Categorify(columns=("city", "tags"), freq_threshold=2),
    Categorify(columns="city_max", max_size=4),
    Categorify(columns=("city_hashed", "tags_hashed"), freq_threshold=2, num_buckets=1000),
    Categorify(columns=("city_both", "tags_both", "tags_max"), max_size=6, num_buckets=2),
    Categorify(columns=("next",), freq_threshold=2, num_buckets=50),
)


@cache
def known(name: str) -> Answer:
    """Return the engine's answer to many ways to encode."""
    with tempfile.TemporaryDirectory() as folder:
        return made(name, Path(folder), *OPS, train=copies(TRAIN), valid=copies(VALID))


@every_participant
def test_values_below_the_threshold_are_unseen(name: str) -> None:
    found = known(name)
    assert found.vocabulary("city") == {"oslo": 3, "bergen": 2}
    assert found.vocabulary("tags") == {"x": 3, "y": 2}
    assert Counter(found.column("city")) == {3: 3, 4: 2, 2: 1, 1: 1}
    assert found.column("city", "valid") == [2, 2, 3]
    assert found.column("tags", "valid") == [[2, 3], [], [2]]
    assert rest(found.fitted, "city") == (1, 1)
    assert rest(found.fitted, "tags") == (1, 1)
    assert found.fitted.schema("star")["city"].cardinality == 5


@every_participant
def test_max_size_keeps_the_first_and_has_room_for_all_reserved_rows(name: str) -> None:
    found = known(name)
    assert found.vocabulary("city_max") == {"oslo": 3}
    assert found.vocabulary("tags_max") == {"x": 3}
    assert [found.fitted.schema("star")[column].cardinality for column in ("city_max", "tags_max")] == [4, 6]
    assert rest(found.fitted, "city_max") == (1, 3)


@every_participant
def test_unseen_values_are_spread_over_buckets_behind_the_vocabulary(name: str) -> None:
    found = known(name)
    first = FIRST + 2
    town = first + bucket("a town of a long name", 1000)
    assert Counter(found.column("city_hashed")) == {3: 3, 4: 2, town: 1, 1: 1}
    assert found.column("city_hashed", "valid") == [first + bucket("stavanger", 1000), town, 3]
    assert found.column("tags_hashed", "valid") == [[first + bucket("q", 1000), 3], [], [first + bucket("z", 1000)]]
    column = found.fitted.schema("star")["city_hashed"]
    assert (column.cardinality, column.buckets, column.own_ids) == (1005, 1000, range(3, 5))
    assert rest(found.fitted, "city_hashed") == (1, 1)


@every_participant
def test_buckets_of_whole_numbers(name: str) -> None:
    found = known(name)
    assert found.vocabulary("next") == {20: 3, 10: 2}
    assert found.column("next", "valid") == [[5 + bucket(30, 50), 5 + bucket(99, 50)], [5 + bucket(7, 50)], []]


@every_participant
def test_nothing_is_frequent_enough(name: str, tmp_path: Path) -> None:
    none = Categorify(columns=("user", "item", "city", "tags"), freq_threshold=100)
    found = made(name, tmp_path / "none", none)
    assert {column.cardinality for column in found.fitted.schema("star").categorical} == {FIRST}
    assert set(found.column("user") + found.column("user", "valid")) == {1, 2}
    assert found.column("tags", "valid") == [[2, 2], [], [2]]
    buckets = made(name, tmp_path / "buckets", none.model_copy(update={"num_buckets": 1}))
    assert {column.cardinality for column in buckets.fitted.schema("star").categorical} == {FIRST + 1}
    assert buckets.column("user", "valid") == [3, 3, 1]


@every_participant
@pytest.mark.parametrize("rows", [0, 1])
def test_nothing_to_learn_from(name: str, rows: int, tmp_path: Path) -> None:
    train = pa.table({field.name: pa.array([None] * rows, field.type) for field in TRAIN.schema})
    ops = (
        Categorify(columns=("user", "city", "tags"), freq_threshold=1, num_buckets=3),
        Categorify(columns=("item", "next"), joint=True, max_size=10),
    )
    found = made(name, tmp_path, *ops, train=train)
    assert found.column("city") == [1] * rows
    assert found.column("city", "valid") == [3 + bucket(text, 3) for text in VALID["city"].to_pylist()]
    assert found.column("next", "valid") == [[2, 2], [2], []]
    assert found.fitted.vocabularies["item_next"].num_rows == 0


@every_participant
def test_joint_columns_share_a_vocabulary_of_all_their_values(name: str, tmp_path: Path) -> None:
    found = made(name, tmp_path, Categorify(columns=("user",)), Categorify(columns=("item", "next"), joint=True))
    assert list(found.vocabulary("item_next").items()) == [(10, 5), (20, 5), (30, 1), (99, 1)]
    assert set(found.fitted.vocabularies) == {"user", "item_next"}
    assert found.column("item", "valid") == [5, 6, 4]
    assert found.column("next", "valid") == [[5, 6], [2], []]
    schema = found.fitted.schema("star")
    assert [(schema[c].vocabulary, schema[c].cardinality) for c in ("item", "next")] == [("item_next", 7)] * 2
    assert (rest(found.fitted, "item"), rest(found.fitted, "next")) == ((1, 0), (1, 0))
    assert found.fitted.state[1, "item" + COUNTS]["count"].to_pylist() == [3, 2, 1, 0]
    assert found.fitted.vocabulary_of("next")["count"].to_pylist() == [2, 3, 0, 1]


@every_participant
def test_joint_vocabulary_of_texts_with_a_threshold(name: str, tmp_path: Path) -> None:
    train = TRAIN.set_column(2, "city", pa.array(["x", "oslo", "x", "y", None, "oslo", "z"]).dictionary_encode())
    joint = Categorify(columns=("city", "tags"), joint=True, freq_threshold=3)
    found = made(name, tmp_path, KEYS, joint, train=train, valid=train)
    assert found.vocabulary("city_tags") == {"x": 5, "y": 3}
    assert (rest(found.fitted, "city"), rest(found.fitted, "tags")) == ((1, 3), (1, 1))


@every_participant
def test_a_key_in_a_joint_vocabulary_weighs_its_table_by_its_own_values(name: str, tmp_path: Path) -> None:
    ops = (
        JoinExternal(table="items", on="item", columns=("genre",)),
        Categorify(columns=("item", "next"), joint=True),
        Categorify(columns=("user", "genre")),
    )
    found = made(name, tmp_path, *ops)
    assert found.vocabulary("genre") == {"drama": 4, "comedy": 2}  # 99 is in `next` only
    assert found.tables["item"].column("genre").to_pylist() == [1, 1, 1, 3, 4, 3, 2]
    assert found.column("genre", "valid", layout="flat") == [3, 2, 4]


@every_participant
def test_infrequent_keys_share_ids_and_keep_their_own_rows(name: str, tmp_path: Path) -> None:
    ops = (
        JoinExternal(table="items", on="item", columns=("genre",)),
        Categorify(columns=("item",), freq_threshold=2, num_buckets=2),
        Categorify(columns=("user", "genre")),
    )
    found = made(name, tmp_path, *ops)
    assert found.vocabulary("genre") == {"drama": 4, "comedy": 2}
    assert rest(found.fitted, "genre") == (1, 0)
    assert found.tables["item"].column("genre").to_pylist()[:8] == [1, 1, 1, 3, 4, 1, 1, 3]
    assert Counter(found.column("genre", layout="flat")) == {3: 4, 4: 2, 1: 1}


def test_joint_columns_live_in_one_place(tmp_path: Path) -> None:
    train = TRAIN.rename_columns([{"city": "town"}.get(column, column) for column in TRAIN.column_names])
    ops = (
        JoinExternal(table="items", on="item", columns=("city",)),
        KEYS,
        Categorify(columns=("town", "city"), joint=True),
    )
    with pytest.raises(ConfigError, match=r"belong to one table.*town in the interactions, city in the table by item"):
        made("polars", tmp_path, *ops, train=train, valid=train)


@every_participant
def test_joint_columns_of_one_table(name: str, tmp_path: Path) -> None:
    ops = (
        JoinExternal(table="items", on="item", columns=("genre", "city")),
        KEYS,
        Categorify(columns=("genre", "city"), joint=True),
    )
    train = TRAIN.drop_columns(["city"])
    found = made(name, tmp_path, *ops, train=train, valid=VALID.drop_columns(["city"]))
    assert found.vocabulary("genre_city") == {"drama": 4, "a": 3, "b": 2, "comedy": 2, "c": 1}
    assert found.tables["item"].column("city").to_pylist() == [1, 1, 1, 4, 5, 7, 2]


def test_joint_columns_hold_one_type(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="item holds int32, city holds string"):
        made("polars", tmp_path, Categorify(columns=("user",)), Categorify(columns=("item", "city"), joint=True))


def test_two_vocabularies_of_one_name(tmp_path: Path) -> None:
    train = TRAIN.append_column("item_next", pa.array([1] * 7))
    ops = (Categorify(columns=("user", "item_next")), Categorify(columns=("item", "next"), joint=True))
    with pytest.raises(ConfigError, match="two vocabularies are called 'item_next'"):
        made("polars", tmp_path, *ops, train=train, valid=train)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_size": 2}, "too small for 3 reserved rows and 0 buckets"),
        ({"max_size": 5, "num_buckets": 3}, "too small for 3 reserved rows and 3 buckets"),
        ({"joint": True}, "at least two columns"),
        ({"vocabs": {"other": "x.csv"}}, "vocabs names"),
        ({"vocabs": {"city": "x.csv"}, "freq_threshold": 2}, "used completely"),
        ({"freq_threshold": -1}, "greater than or equal to 0"),
        ({"num_buckets": 2**31}, "less than or equal to"),
        ({"grow": True}, "grow appends to given vocabularies"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Categorify(columns=("city",), **options)


def write_vocabulary(path: Path, values: list[Any]) -> str:
    """Write values in a format that the path's suffix says."""
    table = pa.table({"other": ["no"] * len(values), "value": values})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        arrow_csv.write_csv(table if path.stem == "two" else table.select(["value"]).rename_columns(["name"]), path)
    else:
        path.write_text("".join(f"{value}\r\n" for value in values), encoding="utf-8")
    return str(path)


@every_participant
def test_a_given_vocabulary_keeps_its_order_and_has_counts_of_train(name: str, tmp_path: Path) -> None:
    files = {"city": "v.parquet", "city_max": "two.csv", "city_hashed": "one.csv", "city_both": "v.txt"}
    values = ["é", "bergen", "stavanger", "oslo"]
    paths = {column: write_vocabulary(tmp_path / file, values) for column, file in files.items()}
    ops = (KEYS, Categorify(columns=tuple(files), vocabs=paths))
    found = made(name, tmp_path / "made", *ops, train=copies(TRAIN), valid=copies(VALID))
    for column in files:
        assert list(found.vocabulary(column).items()) == [("é", 0), ("bergen", 2), ("stavanger", 0), ("oslo", 3)]
        assert found.column(column, "valid") == [5, 2, 6]
        assert rest(found.fitted, column) == (1, 1)


@every_participant
def test_a_given_vocabulary_grows_by_the_values_of_train(name: str, tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "v.parquet", ["é", "bergen"])
    rest = {None: ["oslo", "a town of a long name"], "freq_threshold": ["oslo"], "max_size": []}
    for option, appended in rest.items():
        more = {option: {"freq_threshold": 3, "max_size": 5}[option]} if option else {}
        city = Categorify(columns=("city",), vocabs={"city": path}, grow=True, **more)
        found = made(name, tmp_path / str(option), KEYS, city, train=copies(TRAIN), valid=copies(VALID))
        assert list(found.vocabulary("city")) == ["é", "bergen", *appended]


@every_participant
def test_given_vocabularies_of_numbers_and_of_joint_columns_with_buckets(name: str, tmp_path: Path) -> None:
    items = write_vocabulary(tmp_path / "v.txt", [99, 20])
    users = write_vocabulary(tmp_path / "v.parquet", [3, 2])
    ops = (
        Categorify(columns=("item", "next"), joint=True, vocabs={"item_next": items}, num_buckets=2),
        Categorify(columns=("user", "city"), vocabs={"user": users}),
        JoinExternal(table="items", on="item", columns=("genre",)),
        Categorify(columns=("genre",)),
    )
    found = made(name, tmp_path / "made", *ops)
    assert found.vocabulary("item_next") == {99: 1, 20: 5}
    assert found.fitted.vocabularies["item_next"].schema.field("value").type == pa.int64()
    assert found.column("item", "valid") == [5 + bucket(30, 2), 3, 4]
    assert found.column("next", "valid") == [[5 + bucket(30, 2), 3], [5 + bucket(7, 2)], []]
    assert found.column("user", "valid") == [2, 2, 1]
    assert found.vocabulary("city")["oslo"] == 3
    assert found.vocabulary("genre") == {"drama": 4, "comedy": 2}
    assert rest(found.fitted, "genre") == (1, 0)


@every_participant
def test_a_given_vocabulary_where_train_has_no_value(name: str, tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "v.txt", ["a", "b"])
    train = TRAIN.set_column(2, "city", pa.nulls(7))
    city = Categorify(columns=("city",), vocabs={"city": path})
    found = made(name, tmp_path / "made", KEYS, city, train=train, valid=train)
    assert found.vocabulary("city") == {"a": 0, "b": 0}
    assert found.column("city") == [1] * 7


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["b", "a", "b", "c", "a"], "2 duplicate values: b, a"),
        (["a", None, "b", None], "2 values are null: number 2, 4"),
        ([["a"]], "vocabulary of city"),
    ],
)
def test_a_given_vocabulary_that_is_none(values: list[Any], problem: str, tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "v.parquet", values)
    with pytest.raises(DataError, match=problem):
        made("polars", tmp_path / "made", KEYS, Categorify(columns=("city",), vocabs={"city": path}))


def test_a_given_vocabulary_of_another_type(tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "v.txt", ["1", "two"])
    with pytest.raises(DataError, match=r"the vocabulary of user, .*v\.txt: .*two"):
        made("polars", tmp_path / "made", Categorify(columns=("user", "item"), vocabs={"user": path}))


def test_a_given_vocabulary_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv: "):
        made("polars", tmp_path, Categorify(columns=("user", "item"), vocabs={"user": "nowhere.csv"}))


@every_participant
@pytest.mark.parametrize(("split", "raw"), [("train", TRAIN), ("valid", VALID)])
def test_decoding_gives_back_all_but_what_was_left_out(name: str, split: str, raw: pa.Table) -> None:
    found = known(name)
    for column in found.fitted.plan.categorified:
        vocabulary = found.fitted.vocabularies[column].column("value").to_pylist()
        values = dict(enumerate(vocabulary, FIRST)) | {1: None}
        decoded = [_each(row, values) for row in found.column(column, split)]
        before = raw.column(column.split("_")[0])
        kept = {value: value for value in (*vocabulary, None)}
        rows = [[] if row is None and pa.types.is_list(before.type) else row for row in before.to_pylist()]
        expected = [_each(row, kept) for row in rows]
        assert sorted(map(repr, decoded)) == sorted(map(repr, expected)), column  # the rows of train are shuffled


def _each(row: Any, meanings: Mapping[Any, Any]) -> Any:
    return [meanings.get(value, ...) for value in row] if isinstance(row, list) else meanings.get(row, ...)


@every_participant
def test_values_that_are_nearly_the_same(name: str, tmp_path: Path) -> None:
    values = ["12345678", "123456789", "1234567", "", " ", "12345678é", "Ω" * 4, "Ω" * 5]
    numbers = [0.5, NAN, -0.0, 0.0, 2.0**53, 2.0**53 + 2, -1e300, 1e-300]
    train = pa.table({"user": values, "item": numbers, "rating": [1.0] * 8})
    found = made(name, tmp_path, KEYS, train=train, valid=train)
    assert found.column("user", "valid") == [FIRST + sorted(values, key=str.encode).index(value) for value in values]
    assert found.vocabulary("item") == {0.0: 2, -1e300: 1, 1e-300: 1, 0.5: 1, 2.0**53: 1, 2.0**53 + 2: 1}
    assert found.column("item", "valid") == [6, 1, 3, 3, 7, 8, 4, 5]


OPTIONS = st.sampled_from([
    {"freq_threshold": 2}, {"max_size": 4}, {"num_buckets": 3}, {"freq_threshold": 2, "num_buckets": 2},
    {"max_size": 6, "num_buckets": 2, "freq_threshold": 2}, {"freq_threshold": 100, "num_buckets": 1},
])  # fmt: skip


@needs_all
@settings(max_examples=12, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(cases(), OPTIONS, OPTIONS, st.booleans())
def test_engines_agree(case: Case, keys: dict[str, Any], others: dict[str, Any], joint: bool) -> None:
    join, encode, label = case.plan.ops
    joint = joint and case.splits["train"].schema.field("user").type == case.splits["train"].schema.field("item").type
    ops = (
        join, Categorify(columns=("user", "item"), joint=joint, **keys),
        Categorify(columns=("tags", "genres", "year"), **others), label,
    )  # fmt: skip
    case = Case(case.splits, case.tables, case.plan.model_copy(update={"ops": ops}))
    assert isinstance(encode, Categorify)
    answers = []
    for name in PARTICIPANTS:
        with tempfile.TemporaryDirectory() as folder:
            made_of = answer(name, case, Path(folder))
            state = {str(at): table.to_pydict() for at, table in made_of.fitted.state.items()}
            answers.append((made_of.files(), repr(state)))
    assert answers[0] == answers[1] == answers[2]
