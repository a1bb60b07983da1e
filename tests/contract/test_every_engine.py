"""What holds of every engine: answers known by hand, the same files from each, and nothing left behind.

One module, because importing NVTabular takes seconds; the answers of an engine are computed once and looked at by many tests.
"""

from __future__ import annotations

import datetime
import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import FIRST
from recsys_cli.ops import Categorify, JoinExternal, LambdaOp
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.registry import ENGINES
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace
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
    stage_by_hand,
)
from tests.strategies import Case, cases, known_state

TRAIN = interactions({
    "user": ["ann", "bob", "ann", "zoë", "bob", None],
    "item": [10, 20, 20, 30, 99, None],
    "tags": pa.array([["x", "y"], [], None, ["y", None], ["é"], ["x"]]),
    "rating": [5.0, 1.0, 3.5, None, NAN, 4.0],
    "time": [60, 50, 40, 30, 20, 10],
})  # fmt: skip
VALID = interactions({
    "user": ["bob", "new", None],
    "item": [40, 10, 20],
    "tags": pa.array([["x", "q"], None, []]),
    "rating": [4.0, None, 2.0],
    "time": [1, 2, 3],
})  # fmt: skip
ITEMS = pa.table({
    "item": [10, 20, 30, 40, None],
    "genres": pa.array([["Drama", "Comedy"], ["Comedy", None], None, ["Western"], ["Lost"]]),
    "year": [1999, None, 2001, 1950, 1],
    "price": [1.5, 2.5, None, 4.0, 5.0],
})  # fmt: skip
PLAN = plan(
    JoinExternal(table="items", on="item", columns=("genres", "year", "price")),
    Categorify(columns=("user", "item", "tags", "genres", "year")),
    LambdaOp(expression="rating > 3", output="label", dtype="int8"),
    label="label",
    timestamp="time",
)
CASE = Case({"train": TRAIN, "valid": VALID}, {"items": ITEMS}, PLAN)


@cache
def known(name: str) -> Answer:
    """Return the engine's answer to the case above."""
    with tempfile.TemporaryDirectory() as folder:
        return answer(name, CASE, Path(folder))


@every_participant
def test_vocabulary_is_by_count_then_value(name: str) -> None:
    made = known(name)
    assert list(made.vocabulary("user").items()) == [("ann", 2), ("bob", 2), ("zoë", 1)]
    assert list(made.vocabulary("item").items()) == [(20, 2), (10, 1), (30, 1), (99, 1)]
    assert list(made.vocabulary("tags").items()) == [("x", 2), ("y", 2), ("é", 1)]


@every_participant
def test_joined_values_are_counted_over_the_train_interactions(name: str) -> None:
    made = known(name)
    assert list(made.vocabulary("genres").items()) == [("Comedy", 3), ("Drama", 1)]
    assert list(made.vocabulary("year").items()) == [(1999, 1), (2001, 1)]


@every_participant
def test_null_is_1_and_unseen_is_2(name: str) -> None:
    made = known(name)
    assert made.column("user", "valid") == [4, 2, 1]
    assert made.column("item", "valid") == [2, 4, 3]
    by_time = dict(zip(made.column("time"), made.column("item"), strict=True))
    assert by_time == {60: 4, 50: 3, 40: 3, 30: 5, 20: 6, 10: 1}


@every_participant
def test_lists_are_encoded_by_element_and_a_null_list_is_empty(name: str) -> None:
    made = known(name)
    assert made.column("tags", "valid") == [[3, 2], [], []]
    by_time = dict(zip(made.column("time"), made.column("tags"), strict=True))
    assert by_time == {60: [3, 4], 50: [], 40: [], 30: [4, 1], 20: [5], 10: [3]}


@every_participant
def test_table_has_a_row_per_id_and_per_cold_key_and_the_first_three_are_without_a_match(name: str) -> None:
    table = known(name).tables["item"]
    assert table.column("genres").to_pylist() == [[], [], [], [3, 1], [4, 3], [], [], [2]]
    assert table.column("year").to_pylist() == [1, 1, 1, 1, 3, 4, 1, 2]
    assert repr(table.column("price").to_pylist()) == repr([NAN, NAN, NAN, 2.5, 1.5, NAN, NAN, 4.0])
    cold = known(name).fitted.cold_keys("item")
    assert cold is not None
    assert cold.to_pydict() == {"value": [40], "row": [7], "id": [2], "count": [0]}
    assert [field.type for field in table.schema] == [pa.list_(pa.int32()), pa.int32(), pa.float32()]


@every_participant
@pytest.mark.parametrize("split", ["train", "valid"])
def test_flat_is_star_with_the_table_gathered_by_row(name: str, split: str) -> None:
    made = known(name)
    rows = made.column("item" if split == "train" else row_column("item"), split)
    assert split == "train" or rows == [7, 4, 3]
    for column in ("genres", "year", "price"):
        of_row = made.tables["item"].column(column).to_pylist()
        gathered = [of_row[row] for row in rows]
        assert repr(made.column(column, split, layout="flat")) == repr(gathered)
    for column in ("user", "item", "tags", "label", "time"):
        assert made.column(column, split, layout="flat") == made.column(column, split)


@every_participant
def test_rows_and_their_order_are_those_of_staging(name: str, tmp_path: Path) -> None:
    made = known(name)
    staged = stage_by_hand(CASE, tmp_path)
    for split in ("train", "valid"):
        times = [time for shard in range(2) for time in staged.read(split, shard).column("time").to_pylist()]
        assert made.column("time", split) == times
        assert made.shards["star", split, 0].schema.field("time").type == pa.int64()


@every_participant
def test_decoding_gives_back_what_was_encoded(name: str, tmp_path: Path) -> None:
    made = known(name)
    staged = stage_by_hand(CASE, tmp_path)
    for column in ("user", "item", "tags"):
        values = [None] * FIRST + made.fitted.vocabularies[column].column("value").to_pylist()
        raw = [row for shard in range(2) for row in staged.read("train", shard).column(column).to_pylist()]
        for encoded, before in zip(made.column(column), raw, strict=True):
            if column == "tags":
                assert [values[code] for code in encoded] == (before or [])
            else:
                assert values[encoded] == before


@every_participant
def test_a_split_without_rows_writes_nothing(name: str) -> None:
    assert not [key for key in known(name).shards if key[1] == "test"]


@every_participant
def test_no_train_row_at_all_gives_empty_vocabularies(name: str, tmp_path: Path) -> None:
    case = Case({"train": TRAIN.slice(0, 0), "valid": VALID}, CASE.tables, PLAN)
    made = answer(name, case, tmp_path)
    assert {column.cardinality for column in made.fitted.schema("star").categorical} == {FIRST}
    assert made.column("user", "valid") == [2, 2, 1]
    assert made.column("genres", "valid", layout="flat") == [[2], [2, 2], [2, 1]]


@every_participant
def test_one_row_whose_other_values_are_all_null(name: str, tmp_path: Path) -> None:
    nulls = {field.name: pa.array([None], field.type) for field in TRAIN.schema}
    train = pa.table(nulls | {"time": TRAIN.column("time").slice(0, 1)})  # a row without a time is refused
    made = answer(name, Case({"train": train, "valid": VALID}, CASE.tables, PLAN), tmp_path)
    assert (made.column("user"), made.column("item"), made.column("tags")) == ([1], [1], [[]])
    assert made.column("label") == [0]
    assert made.column("user", "valid") == [2, 2, 1]
    assert made.fitted.vocabularies["user"].schema.field("value").type == pa.string()


ODD = interactions({
    "order": pa.array([127, -128, 127, 0], pa.int8()),  # NVTabular has scratch columns of these names
    "labels": pa.array([2**53 + 1, 2**53, None, 2**53], pa.int64()),
    "__tmp__": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "nothing": pa.nulls(4),
    "a/b": pa.array([True, None, False, False]),
    "day": pa.array([datetime.date(2020, 1, 2), None, datetime.date(1960, 1, 1), None]),
    "big": pa.array([2**64 - 1, 0, 2**64 - 1, None], pa.uint64()),
    "real": pa.array([-0.0, 0.0, NAN, 1.5]),
    "rating": [1.0, 2.0, 3.0, 4.0],
    "time": pa.array([1, 2, 3, 4], pa.timestamp("ms")),
})  # fmt: skip


@every_participant
def test_all_types_of_values_and_names_of_columns(name: str, tmp_path: Path) -> None:
    columns = tuple(column for column in ODD.column_names if column not in {"rating", "time"})
    made = answer(
        name, Case({"train": ODD}, {}, plan(Categorify(columns=columns), user="order", item="labels")), tmp_path
    )
    expected: dict[str, list[Any]] = {
        "order": [127, -128, 0],
        "labels": [2**53, 2**53 + 1],
        "__tmp__": ["a", "b"],
        "nothing": [],
        "a/b": [False, True],
        "day": [datetime.date(1960, 1, 1), datetime.date(2020, 1, 2)],
        "big": [2**64 - 1, 0],
        "real": [0.0, 1.5],
    }
    assert {column: list(made.vocabulary(column)) for column in columns} == expected
    assert math.copysign(1, expected["real"][0]) == math.copysign(1, next(iter(made.vocabulary("real")))) == 1
    for column in columns:
        ids = {None: 1} | {value: code for code, value in enumerate(expected[column], FIRST)}
        raw = [None if value != value else value for value in ODD.column(column).to_pylist()]
        assert sorted(made.column(column)) == sorted(ids[value] for value in raw), column


@every_participant
def test_texts_and_lists_as_polars_stores_them_are_the_same(name: str, tmp_path: Path) -> None:
    def large(table: pa.Table) -> pa.Table:
        types = {pa.string(): pa.large_string(), pa.list_(pa.string()): pa.large_list(pa.large_string())}
        return table.cast(pa.schema([(field.name, types.get(field.type, field.type)) for field in table.schema]))

    splits = {split: large(table) for split, table in CASE.splits.items()}
    made = answer(name, Case(splits, {"items": large(ITEMS)}, PLAN), tmp_path)
    assert made.files() == known(name).files()


@every_participant
def test_a_computed_column_can_be_categorified(name: str, tmp_path: Path) -> None:
    ops = (
        LambdaOp(expression="rating > 3", output="high", dtype="int8"),
        LambdaOp(expression="high * 2 + item / 10", output="item", dtype="int64"),
        Categorify(columns=("user", "item", "high")),
        LambdaOp(expression="1", output="met", dtype="int8"),
    )
    made = answer(name, Case({"train": TRAIN, "valid": VALID}, {}, plan(*ops, label="met")), tmp_path)
    assert made.vocabulary("high") == {0: 3, 1: 3}
    assert made.vocabulary("item") == {3: 2, 0: 1, 2: 1, 4: 1, 9: 1}
    assert made.column("item", "valid") == [2, 2, 5]


@every_participant
def test_two_tables_joined_by_two_keys(name: str, tmp_path: Path) -> None:
    people = pa.table({"user": ["bob", "zoë"], "town": ["Oslo", "Bergen"]})
    prices = pa.table({"item": pa.array([10, 20], pa.int32()), "price": pa.array([7, None], pa.int64())})
    ops = (
        JoinExternal(table="people", on="user", columns=("town",)),
        JoinExternal(table="prices", on="item", columns=("price",)),
        JoinExternal(table="items", on="item", columns=("genres",)),
        Categorify(columns=("user", "item", "town", "genres")),
    )
    tables = {"people": people, "prices": prices, "items": ITEMS}
    made = answer(name, Case({"train": TRAIN, "valid": VALID}, tables, plan(*ops)), tmp_path)
    assert made.vocabulary("town") == {"Oslo": 2, "Bergen": 1}
    assert made.column("town", "valid", layout="flat") == [3, 1, 1]
    assert repr(made.column("price", "valid", layout="flat")) == repr([NAN, 7.0, NAN])
    assert made.column("genres", "valid", layout="flat") == [[2], [4, 3], [3, 1]]
    assert made.tables["item"].column_names == ["price", "genres"]


@every_participant
def test_keys_that_stand_twice_are_named(name: str, tmp_path: Path) -> None:
    tables = {"items": pa.concat_tables([ITEMS, ITEMS.slice(1, 2)])}
    with pytest.raises(DataError, match=r"2 duplicate keys in items\.item: 20, 30"):
        answer(name, Case(CASE.splits, tables, PLAN), tmp_path)


@every_participant
def test_keys_of_nan_match_nothing_and_zero_has_no_sign(name: str, tmp_path: Path) -> None:
    train = interactions({"user": [1, 1, 2], "item": [0.0, NAN, -0.0], "rating": [1.0, 2.0, 3.0]})
    items = pa.table({"item": [NAN, -0.0, NAN], "genre": ["lost", "found", "lost"]})
    ops = (JoinExternal(table="items", on="item", columns=("genre",)), Categorify(columns=("user", "item", "genre")))
    made = answer(name, Case({"train": train}, {"items": items}, plan(*ops)), tmp_path)
    assert made.vocabulary("genre") == {"found": 2}
    assert sorted(made.column("genre", layout="flat")) == [1, 3, 3]
    with pytest.raises(DataError, match=r"1 duplicate keys in items\.item: 0\.0"):
        answer(
            name,
            Case({"train": train}, {"items": items.set_column(0, "item", [[NAN, -0.0, 0.0]])}, plan(*ops)),
            tmp_path,
        )


@every_participant
def test_a_key_of_another_type_is_named(name: str, tmp_path: Path) -> None:
    tables = {"items": ITEMS.set_column(0, "item", pa.array(["a", "b", "c", "d", "e"]))}
    with pytest.raises(ConfigError, match=r"item is int64 in the interactions and string in items"):
        answer(name, Case(CASE.splits, tables, PLAN), tmp_path)


NUMBERS = interactions({
    "user": [1, 1, 1, 1],
    "item": [1, 1, 1, 1],
    "small": pa.array([100, -100, None, 0], pa.int8()),
    "single": pa.array([0.1, NAN, None, -7.9], pa.float32()),
    "double": pa.array([1e300, -128.5, None, 2.5]),
    "flag": [True, False, None, True],
    "text": ["a", "é", None, ""],
    "whole": pa.array([1, 2, None, 0], pa.uint32()),
    "zero": [0.0, -0.0, None, NAN],
    "rating": [1.0, 2.0, 3.0, 4.0],
})  # fmt: skip
EXPRESSIONS: list[tuple[str, str, list[Any]]] = [
    ("whole > 1", "int8", [0, 1, 0, 0]),
    ("whole >= 1", "float32", [1.0, 1.0, NAN, 0.0]),
    ("single > 0.1", "float64", [1.0, NAN, NAN, 0.0]),  # in double precision, where 0.1 of float32 is the greater
    ("single != single", "int8", [0, 0, 0, 0]),
    ("small + small", "int64", [200, -200, 0, 0]),
    ("small * 2", "int8", [0, 0, 0, 0]),  # 200 does not fit
    ("small / small", "float32", [1.0, 1.0, NAN, NAN]),
    ("whole / 0", "float64", [math.inf, math.inf, NAN, NAN]),
    ("1 / zero", "float32", [math.inf, -math.inf, NAN, NAN]),
    ("zero", "float64", [0.0, -0.0, NAN, NAN]),
    ("whole - 3", "int32", [-2, -1, 0, -3]),
    ("-whole", "int8", [-1, -2, 0, 0]),
    ("double", "int8", [0, -128, 0, 2]),
    ("double", "int64", [0, -128, 0, 2]),
    ("double * double", "float32", [math.inf, 16512.25, NAN, 6.25]),
    ("single", "int16", [0, 0, 0, -7]),
    ("flag", "float32", [1.0, 0.0, NAN, 1.0]),
    ("flag + flag", "int8", [2, 0, 0, 2]),
    ("flag - (whole > 1)", "int8", [1, -1, 0, 1]),
    ("-flag", "int8", [-1, 0, 0, -1]),
    ("flag == 1", "float32", [1.0, 0.0, NAN, 1.0]),
    ("not flag", "float32", [0.0, 1.0, NAN, 0.0]),
    ("not whole", "float32", [0.0, 0.0, NAN, 1.0]),
    ("whole and small", "int8", [1, 1, 0, 0]),
    ("flag and single > 0", "float32", [1.0, 0.0, NAN, 0.0]),  # false decides alone
    ("flag or single > 0", "float32", [1.0, NAN, NAN, 1.0]),  # true decides alone
    ("text == 'a' or flag", "float32", [1.0, 0.0, NAN, 1.0]),
    ("text < 'b'", "float32", [1.0, 0.0, NAN, 1.0]),
    ("'a' == 'a'", "int8", [1, 1, 1, 1]),
    ("1 / 0", "float32", [math.inf] * 4),
    ("2", "int8", [2, 2, 2, 2]),
    ("True", "int8", [1, 1, 1, 1]),
]


@every_participant
def test_expressions(name: str, tmp_path: Path) -> None:
    ops = [LambdaOp(expression=e, output=f"o{i}", dtype=d) for i, (e, d, _) in enumerate(EXPRESSIONS)]
    case = Case({"train": NUMBERS}, {}, plan(Categorify(columns=("user", "item")), *ops))
    engine = engine_of(name, tmp_path)
    empty = pa.table({"value": pa.array([], pa.int64()), "count": pa.array([], pa.int64())})
    state = known_state(case.plan, {"user": empty, "item": empty})
    fitted = FittedPlan(case.plan, {"interactions": NUMBERS.schema}, state)
    made = engine.apply(fitted.program.transforms(None), fitted, NUMBERS)
    for index, (expression, dtype, expected) in enumerate(EXPRESSIONS):
        column = made.column(f"o{index}")
        assert column.type == pa.type_for_alias(dtype), expression
        assert repr(column.to_pylist()) == repr(pa.array(expected, column.type).to_pylist()), (expression, dtype)


@every_participant
@pytest.mark.parametrize("expression", ["text", "text > 3", "text + 1", "text and flag", "not text", "-text", "'a'"])
def test_expressions_do_not_calculate_with_text(name: str, expression: str, tmp_path: Path) -> None:
    ops = (Categorify(columns=("user", "item")), LambdaOp(expression=expression, output="label", dtype="int8"))
    with pytest.raises(ConfigError, match="text"):
        answer(name, Case({"train": NUMBERS}, {}, plan(*ops)), tmp_path)


@every_participant
def test_nothing_is_left_behind(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "staged").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    answer(name, CASE, tmp_path / "staged")
    assert not list((tmp_path / "here").iterdir())
    assert {path.name for path in (tmp_path / "staged").iterdir()} == {"batch.arrow", "star", "flat"}


def prepare(case: Case, folder: Path, *, engine: str, layout: str) -> PreparedData:
    """Send a case through the stage, from parquet files to prepared data."""
    for table, rows in {**case.splits, **case.tables}.items():
        pq.write_table(rows, folder / f"{table}.parquet")
    paths = {split: str(folder / f"{split}.parquet") for split in case.splits}
    config = RunConfig.model_validate({
        "dataset": {
            "name": "files", "interactions": paths["train"], "tables": {n: str(folder / f"{n}.parquet") for n in case.tables},
        },
        "split": {"method": "files", **paths},
        "features": case.plan.model_dump(),
        "etl": {"engine": engine, "layout": layout, "shard_rows": 4},
    })  # fmt: skip
    workspace = Workspace(folder / f"{engine}-{layout}")
    download(config.dataset, workspace)
    return etl(config, workspace).artifact


@needs_all
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_stage_writes_the_same_files_with_every_participant(layout: str, tmp_path: Path) -> None:
    files = []
    for name in ENGINES:
        data = prepare(CASE, tmp_path, engine=name, layout=layout)
        tables = {str(path.relative_to(data.folder)): pq.read_table(path) for path in data.folder.rglob("*.parquet")}
        found = {at: (repr(table.schema), repr(table.to_pydict())) for at, table in tables.items()}
        texts = {at: (data.folder / at).read_text() for at in ("schema.json", "plan.json")}
        files.append((found, texts, data.manifest["quality"], data.manifest["rows"]))
    assert files[0] == files[1]
    assert len([at for at in files[0][0] if at.startswith("train")]) > 1


@needs_all
@settings(max_examples=30, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(cases())
def test_engines_agree(case: Case) -> None:
    made = []
    for name in PARTICIPANTS:
        with tempfile.TemporaryDirectory() as folder:
            made.append(answer(name, case, Path(folder)).files())
    assert made[0] == made[1] == made[2]
