"""Rename, ListSlice, ValueCount, AddTags, DropLowCardinality: answers known by hand, on every engine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column
from recsys_cli.ops import AddTags, Categorify, DropLowCardinality, JoinExternal, ListSlice, Rename, ValueCount
from recsys_cli.ops.fitted_plan import FittedPlan
from tests.engines import (
    LAYOUTS,
    NAN,
    PARTICIPANTS,
    Answer,
    answer,
    engine_of,
    every_participant,
    interactions,
    needs_all,
    plan,
)
from tests.strategies import Case, known_state

TRAIN = interactions({
    "userId": ["ann", "bob", "ann", None],
    "itemId": [10, 20, 20, 30],
    "tags": pa.array([["x", "y", "z"], [], None, ["y", None, "x", "x"]]),
    "reals": pa.array([[1.5, None, NAN], [2.0], None, []], pa.list_(pa.float64())),
    "one": ["same", "same", None, "same"],
    "stars": [5.0, 1.0, 3.5, None],
    "when": [1, 2, 3, 4],
})  # fmt: skip
VALID = interactions({
    "userId": ["bob", "new"],
    "itemId": [40, 10],
    "tags": pa.array([["x", "q", "y", "z", "x"], None]),
    "reals": pa.array([[7.0, 8.0, 9.0, 1.0], [1.0]]),
    "one": ["other", None],
    "stars": [4.0, 2.0],
    "when": [1, 2],
})  # fmt: skip
ITEMS = pa.table({
    "itemId": [10, 20, 30, 40],
    "genres": pa.array([["a", "b"], ["b"], None, ["a", "b", "c", "d"]]),
    "studio": ["s", "s", "s", "t"],
})  # fmt: skip
NAMES = Rename(columns={"userId": "user", "itemId": "item", "stars": "rating"})
JOIN = JoinExternal(table="items", on="item", columns=("genres", "studio"))
TABLES = {"items": ITEMS.rename_columns(["item", "genres", "studio"])}
IDS = Categorify(columns=("user", "item"))


def made_by(name: str, folder: Path, *ops: Any, tables: dict[str, pa.Table] | None = None) -> Answer:
    case = Case({"train": TRAIN, "valid": VALID}, tables or {}, plan(NAMES, *ops, timestamp="when"))
    return answer(name, case, folder)


def column(made: Answer, name: str, layout: str = "star") -> Column:
    return made.fitted.schema(layout)[name]


def by_time(made: Answer, name: str, layout: str) -> list[Any]:
    """Return a column of train in the order in which it was given."""
    values = dict(zip(made.column("when", layout=layout), made.column(name, layout=layout), strict=True))
    return [values[time] for time in sorted(values)]


@every_participant
def test_columns_are_known_by_their_new_names(name: str, tmp_path: Path) -> None:
    ops = (Rename(columns={"tags": "labels"}), JOIN, Categorify(columns=("user", "item", "labels", "genres", "studio")))
    after = Rename(columns={"labels": "words", "genres": "kinds"})
    made = made_by(name, tmp_path, *ops, after, tables=TABLES)
    names = {"user", "item", "rating", "words", "studio", "kinds", "when"}
    assert set(made.fitted.schema("star").names) == set(made.fitted.schema("flat").names) == names
    assert column(made, "words").vocabulary == "labels"
    assert column(made, "words").cardinality == 6
    assert (column(made, "kinds").table, column(made, "kinds").vocabulary) == ("item", "genres")
    for layout in LAYOUTS:
        assert by_time(made, "user", layout) == [3, 4, 3, 1]
        assert by_time(made, "words", layout) == [[3, 4, 5], [], [], [4, 1, 3, 3]]
    assert made.column("kinds", "valid", layout="flat") == [[4, 3, 2, 2], [4, 3]]


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_and_nulls_keep_their_values_under_a_new_name(name: str, layout: str, tmp_path: Path) -> None:
    made = made_by(name, tmp_path, IDS)
    assert repr(by_time(made, "rating", layout)) == repr([5.0, 1.0, 3.5, NAN])


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ((Rename(columns={"tags": "one"}),), "Rename: column 'one' exists already"),
        ((Rename(columns={"stars": "rating2"}),), "no column 'stars' in the interactions"),
        ((JOIN, Rename(columns={"item": "movie"})), "Rename: 'item' is the key of a joined table"),
        ((IDS, JOIN, Rename(columns={"item": "movie"})), "'item' is the key of a joined table"),
        ((ListSlice(columns="user", start=2),), "ListSlice: 'user' holds a single value in each row"),
        ((ListSlice(columns="tags", start=2, pad=True),), "lists of string; only numbers and ids can be padded"),
        ((ValueCount(columns="rating"),), "ValueCount: 'rating' holds a single value"),
        ((DropLowCardinality(columns="one"),), "DropLowCardinality: 'one' has no vocabulary"),
        ((DropLowCardinality(columns="user"),), "'user' is named as user and cannot be dropped"),
        ((DropLowCardinality(columns="tags"), Categorify(columns="tags")), "Categorify reads 'tags', which Drop"),
    ],
)
def test_what_cannot_be_is_named_before_any_work(ops: tuple[Any, ...], message: str) -> None:
    case = plan(NAMES, *ops, *([IDS] if IDS not in ops else []), timestamp="when")
    with pytest.raises(ConfigError, match=message):
        case.compile({"interactions": TRAIN.schema, "items": TABLES["items"].schema})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": "b", "b": "c"}, "b would be an old and a new name"),
        ({"a": "c", "b": "c"}, "called c"),
        ({"a": ""}, "empty"),
    ],
)
def test_new_names_are_told_apart(columns: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Rename(columns=columns)


SLICES: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"start": 2}, [[3, 4], [], [], [4, 1]], [[3, 2], []]),
    ({"start": -2}, [[4, 5], [], [], [3, 3]], [[5, 3], []]),
    ({"start": 1, "end": 3}, [[4, 5], [], [], [1, 3]], [[2, 4], []]),
    ({"start": -3, "end": -1}, [[3, 4], [], [], [1, 3]], [[4, 5], []]),
    ({"start": 1, "end": -1}, [[4], [], [], [1, 3]], [[2, 4, 5], []]),
    ({"start": -2, "end": 2}, [[4], [], [], []], [[], []]),
    ({"start": 0}, [[3, 4, 5], [], [], [4, 1, 3, 3]], [[3, 2, 4, 5, 3], []]),
    ({"start": 9, "end": 12}, [[], [], [], []], [[], []]),
    ({"start": 2, "pad": True}, [[3, 4], [0, 0], [0, 0], [4, 1]], [[3, 2], [0, 0]]),
    ({"start": -4, "pad": True}, [[3, 4, 5, 0], [0] * 4, [0] * 4, [4, 1, 3, 3]], [[2, 4, 5, 3], [0] * 4]),
    ({"start": 1, "end": 3, "pad": True, "pad_value": 7}, [[4, 5], [7, 7], [7, 7], [1, 3]], [[2, 4], [7, 7]]),
]  # fmt: skip


@every_participant
def test_lists_are_cut_as_python_cuts_them(name: str, tmp_path: Path) -> None:
    given = [[3, 4, 5], [], None, [4, 1, 3, 3], [3, 2, 4, 5, 3], None]
    lists = pa.array(given, pa.list_(pa.int32()))
    rows = pa.table(
        {"user": [1] * 6, "item": [1] * 6, "rating": [1.0] * 6} | {str(at): lists for at in range(len(SLICES))}
    )
    ops = [ListSlice(columns=str(at), **options) for at, (options, _, _) in enumerate(SLICES)]
    case = plan(IDS, *ops)
    empty = pa.table({"value": pa.array([], pa.int64()), "count": pa.array([], pa.int64())})
    fitted = FittedPlan(case, {"interactions": rows.schema}, known_state(case, {"user": empty, "item": empty}))
    engine = engine_of(name, tmp_path)
    made = engine.apply(fitted.program.transforms(None), fitted, rows)
    for at, (options, some, more) in enumerate(SLICES):
        assert made.column(str(at)).to_pylist() == some + more, options
        lengths = (len(some[1]), len(some[1])) if options.get("pad") else None
        assert fitted.schema("star")[str(at)].lengths == lengths
    none = engine.apply(fitted.program.transforms(None), fitted, rows.slice(0, 0))
    assert [none.schema.field(str(at)).type.value_type for at in range(len(SLICES))] == [pa.int32()] * len(SLICES)


@every_participant
def test_raw_lists_are_cut_before_they_are_counted(name: str, tmp_path: Path) -> None:
    ops = (
        ListSlice(columns="tags", start=-2),
        ListSlice(columns="reals", start=-2, pad=True, pad_value=-1.5),
        Categorify(columns="tags"),
    )
    made = made_by(name, tmp_path, IDS, *ops)
    assert made.vocabulary("tags") == {"x": 2, "y": 1, "z": 1}
    assert by_time(made, "tags", "star") == [[4, 5], [], [], [3, 3]]
    assert repr(by_time(made, "reals", "star")) == repr([[NAN, NAN], [2.0, -1.5], [-1.5, -1.5], [-1.5, -1.5]])


@every_participant
def test_joined_lists_are_cut_by_id(name: str, tmp_path: Path) -> None:
    ops = (JOIN, ListSlice(columns="genres", start=1), Categorify(columns=("user", "item", "genres", "studio")))
    made = made_by(name, tmp_path, *ops, tables=TABLES)
    assert made.vocabulary("genres") == {"b": 2, "a": 1}
    assert made.tables["item"].column("genres").to_pylist() == [[], [], [], [3], [4], [], [4]]
    assert by_time(made, "genres", "flat") == [[4], [3], [3], []]


@every_participant
def test_no_row_of_train_leaves_typed_lists(name: str, tmp_path: Path) -> None:
    ops = (
        NAMES,
        ValueCount(columns="tags"),
        ListSlice(columns=("tags", "reals"), start=-2),
        IDS,
        Categorify(columns="tags"),
    )
    case = Case({"train": TRAIN.slice(0, 0), "valid": VALID}, {}, plan(*ops, timestamp="when"))
    made = answer(name, case, tmp_path)
    assert made.column("tags", "valid") == [[2, 2], []]
    assert column(made, "tags").lengths == (0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 3, "end": 3}, "the slice from 3 to 3 is empty"),
        ({"start": -1, "end": -2}, "the slice from -1 to -2 is empty"),
        ({"start": 0, "pad": True}, "pad needs a fixed length"),
        ({"start": -3, "end": 3, "pad": True}, "pad needs a fixed length"),
        ({"start": 1, "pad": True, "pad_value": NAN}, "finite"),
    ],
)
def test_slices_without_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ListSlice(columns="tags", **options)


def test_padding_has_to_be_of_the_type() -> None:
    case = plan(NAMES, IDS, Categorify(columns="tags"), ListSlice(columns="tags", start=3, pad=True, pad_value=0.5))
    with pytest.raises(ConfigError, match=r"pad_value 0\.5 does not fit 'tags', which holds int32"):
        case.compile({"interactions": TRAIN.schema})


@every_participant
def test_lengths_are_those_of_train_and_go_along(name: str, tmp_path: Path) -> None:
    ops = (
        JOIN,
        ValueCount(columns=("tags", "reals", "genres")),
        Categorify(columns=("user", "item", "tags", "genres", "studio")),
        ListSlice(columns="tags", start=-3),
    )
    keep = Rename(columns={"reals": "real numbers"})
    made = made_by(name, tmp_path, *ops, keep, tables=TABLES)
    assert column(made, "tags").lengths == (0, 3)
    assert column(made, "real numbers").lengths == (0, 3)
    assert column(made, "genres").lengths == (0, 2)  # the list of four belongs to an item that train does not have
    assert made.fitted.program.passes == 2, "nobody has to wait for what is only noted"
    folder = tmp_path / "fitted"
    folder.mkdir()
    made.fitted.write(folder)
    assert FittedPlan.read(folder).schema("star") == made.fitted.schema("star")


@every_participant
def test_tags_are_added_once_and_stay(name: str, tmp_path: Path) -> None:
    ops = (AddTags(columns=("tags", "one"), tags=("content", "list")), Categorify(columns=("tags", "one")))
    made = made_by(name, tmp_path, IDS, *ops, AddTags(columns="tags", tags=("list", "text")))
    assert column(made, "tags").tags == ("content", "list", "text")
    assert column(made, "one").tags == ("content", "list")
    assert column(made, "user").tags == ()


@every_participant
def test_columns_of_few_values_are_dropped_once_they_are_known(name: str, tmp_path: Path) -> None:
    ops = (
        JOIN,
        Categorify(columns=("user", "item", "tags", "one", "genres", "studio")),
        DropLowCardinality(columns=("one", "tags", "genres", "studio")),
    )
    made = made_by(name, tmp_path, *ops, tables=TABLES)
    assert made.fitted.schema("star").names == ("user", "item", "rating", "tags", "when", "genres")
    assert made.tables["item"].column_names == ["genres"]
    for layout in LAYOUTS:
        assert "one" not in made.shards[layout, "train", 0].column_names
        assert by_time(made, "tags", layout) == [[3, 4, 5], [], [], [4, 1, 3, 3]]
    assert made.vocabulary("one") == {"same": 3}


@every_participant
def test_all_columns_of_a_table_may_be_dropped(name: str, tmp_path: Path) -> None:
    ops = (
        JoinExternal(table="items", on="item", columns=("studio",)),
        Categorify(columns=("user", "item", "studio")),
        DropLowCardinality(columns="studio", min_cardinality=3),
    )
    made = made_by(name, tmp_path, *ops, tables=TABLES)
    assert made.fitted.schema("star").names == made.fitted.schema("flat").names == ("user", "item", "rating", "when")


ROWS = st.lists(st.none() | st.lists(st.sampled_from(["a", "b", None]), max_size=4), min_size=1, max_size=6)
PLACES = st.integers(-5, 5)


@needs_all
@settings(max_examples=12, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(ROWS, PLACES, PLACES | st.none(), st.booleans())
def test_engines_agree_with_each_other_and_with_python(
    rows: list[list[Any] | None], start: int, end: int | None, pad: bool
) -> None:
    try:
        op = ListSlice(columns="tags", start=start, end=end, pad=pad)
    except ValidationError:
        return
    size = len(rows)
    train = pa.table({
        "user": [1] * size, "item": [2] * size, "rating": [1.0] * size, "time": list(range(size)),
        "tags": pa.array(rows, pa.list_(pa.string())),
    })  # fmt: skip
    ops = (Categorify(columns=("user", "item", "tags")), ValueCount(columns="tags"), op)
    made = []
    for name in PARTICIPANTS:
        with tempfile.TemporaryDirectory() as folder:
            made.append(answer(name, Case({"train": train}, {}, plan(*ops, timestamp="time")), Path(folder)))
    assert made[0].files() == made[1].files() == made[2].files()
    lists = [row or [] for row in rows]
    cut = [row[slice(*op.bounds)] for row in lists]
    ids = {None: 1} | {value: at for at, value in enumerate(made[0].vocabulary("tags"), 3)}
    wanted = [[ids[value] for value in row] + [0] * ((op.size or 0) - len(row)) * pad for row in cut]
    times = made[0].column("time")
    assert made[0].column("tags") == [wanted[time] for time in times]
    lengths = [len(row) for row in wanted]
    assert made[0].fitted.schema("star")["tags"].lengths == (min(lengths), max(lengths))
