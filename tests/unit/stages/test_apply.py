"""A fitted plan on new rows: the same result as in etl, and missing columns."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError
from recsys_cli.etl import new_rows
from recsys_cli.etl.new_rows import Applied
from recsys_cli.events import Event, Message
from recsys_cli.features.columns import ROW_NUMBER, USER_HASH
from recsys_cli.features.schema import TICKS
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.encoder import RowEncoder
from recsys_cli.stages.apply import apply, find_data
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace, write_manifest
from tests.engines import NAN, every_engine
from tests.sealing import reseal

TRAIN = pa.table({
    "userId": ["007", "8", "007", None, "9", "8"],
    "movie": pa.array([10, 20, 20, 30, 10, 10], pa.int32()),
    "tags": pa.array([["x", "y", "z"], [], None, ["y"], ["x"], ["q"]]),
    "rating": pa.array([5.0, 1.0, 3.5, None, 4.0, 2.0], pa.float32()),
    "price": [1.0, None, 3.0, 5.0, 2.0, 2.0],
    "time": [60, 50, 40, 30, 20, 10],
})  # fmt: skip
VALID = pa.table({
    "userId": ["9", "new", None],
    "movie": pa.array([40, 10, 20], pa.int32()),
    "tags": pa.array([["x", "new"], None, []]),
    "rating": pa.array([4.0, 2.0, 1.0], pa.float32()),
    "price": [9.0, None, 2.0],
    "time": [1, 2, 3],
})  # fmt: skip
MOVIES = pa.table({"item": [10, 20, 30], "genres": [["a", "b"], ["b"], None], "year": [1999, None, 2001]})
OPS: list[dict[str, Any]] = [
    {"op": "Rename", "columns": {"userId": "user", "movie": "item"}},
    {"op": "JoinExternal", "table": "movies", "on": "item", "columns": ["genres", "year"]},
    {"op": "FillMissing", "columns": ["price"], "fill_val": 0},
    {"op": "Categorify", "columns": ["user", "item", "tags", "genres"]},
    {"op": "ListSlice", "columns": ["tags"], "start": 2},
    {"op": "Normalize", "columns": ["price", "year"]},
    {"op": "LambdaOp", "expression": "if(is_null(year), 0, price)", "output": "mixed"},
    {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
]
FEATURES: dict[str, Any] = {"user": "user", "item": "item", "label": "label", "timestamp": "time", "ops": OPS}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with train, valid and movies."""
    monkeypatch.chdir(tmp_path)
    for name, table in {"train": TRAIN, "valid": VALID, "movies": MOVIES}.items():
        pq.write_table(table, f"{name}.parquet")
    return tmp_path


def prepared(workspace: Workspace, *, features: dict[str, Any] = FEATURES, **changes: Any) -> PreparedData:
    document = {
        "dataset": {"name": "files", "interactions": "train.parquet", "tables": {"movies": "movies.parquet"}},
        "split": {"method": "files", "train": "train.parquet", "valid": "valid.parquet"},
        "features": features,
        "etl": {"layout": "flat", "engine": "polars"},
    }
    return etl(RunConfig.model_validate(document | changes), workspace).artifact


def applied(data: PreparedData, workspace: Workspace, *files: str, **options: Any) -> pa.Table:
    made = apply(str(data.folder), files, workspace, **options)
    return read(made)


def read(made: Applied) -> pa.Table:
    table = pq.read_table(made.output)
    assert made.rows == table.num_rows
    assert made.schema.names == tuple(table.column_names)
    return table


def ordered(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def plan(*ops: dict[str, Any]) -> dict[str, Any]:
    ids = {"op": "Categorify", "columns": ["userId", "movie"]}
    label = {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"}
    return {"user": "userId", "item": "movie", "label": "label", "timestamp": "time", "ops": [*ops, ids, label]}


@every_engine
def test_the_rows_that_were_prepared_come_out_the_same(name, here, workspace):
    data = prepared(workspace)
    how = [f"etl.engine={name}"]
    train = applied(data, workspace, "train.parquet", overrides=how)
    flat = pa.concat_tables([pq.read_table(path) for path in data.shards("train")]).drop_columns([ROW_NUMBER])
    assert train.schema.equals(flat.schema)
    assert ordered(train) == ordered(flat)
    assert train.column("time").to_pylist() == TRAIN.column("time").to_pylist(), "in the order of the file"
    valid = applied(data, workspace, "valid.parquet", overrides=how)
    assert repr(valid.to_pydict()) == repr(
        pq.read_table(data.shards("valid")[0]).drop_columns([USER_HASH, ROW_NUMBER]).to_pydict()
    )
    assert sorted(path.name for path in here.iterdir()) == [
        "movies.parquet", "train.parquet", "train.prepared.parquet", "valid.parquet", "valid.prepared.parquet", "workspace",
    ]  # fmt: skip


def test_a_star_gives_the_same_columns_in_one_file(here, workspace):
    flat = applied(prepared(workspace), workspace, "train.parquet")
    data = prepared(workspace, etl={"layout": "star"})
    star = applied(data, workspace, "train.parquet", output=here / "deep" / "star.parquet")
    assert repr(star.to_pydict()) == repr(flat.to_pydict())
    assert star.column("genres").to_pylist() == [[4, 3], [3], [3], [], [4, 3], [4, 3]]


def test_new_values_are_unseen_and_null_stays_null(here, workspace):
    new = pa.table({
        "rating": [1.0, 5.0, None],
        "surplus": ["a", "b", "c"],
        "movie": pa.array([99, None, 10], pa.int64()),
        "userId": pa.array(["never", None, "8"]).dictionary_encode(),
        "tags": pa.array([["never", "x"], None, [None]], pa.large_list(pa.large_string())),
        "price": pa.array([3, None, 3], pa.int32()),
        "time": pa.array([1_000, None, 3_000], pa.int32()),
    })  # fmt: skip
    pq.write_table(new, "new.parquet")
    made = apply(str(prepared(workspace).folder), ["new.parquet"], workspace)
    table = read(made)
    assert table.column("user").to_pylist() == [2, 1, 4]
    assert table.column("item").to_pylist() == [2, 1, 3]
    assert table.column("tags").to_pylist() == [[2, 3], [], [1]]
    assert table.column("genres").to_pylist() == [[], [], [4, 3]]
    assert table.column("label").to_pylist() == [0, 1, 0]
    assert table.column("time").to_pylist() == [1_000, None, 3_000]
    assert made.missing["user"] == {"null": 1, "unseen": 1, "values": 3}
    assert made.left_out == {}


def test_nan_in_whole_numbers_and_texts_is_null(here, workspace):
    data = prepared(workspace, features=plan())
    new = VALID.set_column(1, "movie", pa.array([NAN, 10.0, 20.0])).set_column(0, "userId", pa.array([NAN] * 3))
    pq.write_table(new, "new.parquet")
    nulls = VALID.set_column(1, "movie", pa.array([None, 10, 20], pa.int32()))
    pq.write_table(nulls.set_column(0, "userId", pa.nulls(3, pa.string())), "null.parquet")
    made = apply(str(data.folder), ["new.parquet"], workspace)
    assert made.missing["movie"]["null"] == 1
    assert made.missing["userId"]["null"] == 3
    assert read(made).equals(applied(data, workspace, "null.parquet"))


def test_label_and_time_may_be_missing(here, workspace):
    data = prepared(workspace)
    whole = applied(data, workspace, "train.parquet")
    pq.write_table(TRAIN.drop_columns(["rating", "time"]), "new.parquet")
    made = apply(str(data.folder), ["new.parquet"], workspace)
    assert made.left_out == {"label": ("rating",), "time": ("time",)}
    assert repr(read(made).to_pydict()) == repr(whole.drop_columns(["label", "time"]).to_pydict())


def test_weights_and_further_labels_may_be_missing_and_weights_of_lists_may_not(here, workspace):
    rows = TRAIN.append_column("boost", pa.array([1.0, 2.0, 0.0, 1.0, 1.0, 3.0]))
    sizes = [len(tags or []) for tags in TRAIN.column("tags").to_pylist()]
    rows = rows.append_column("scores", pa.array([[0.5] * size for size in sizes], pa.list_(pa.float32())))
    for name in ("train", "valid"):
        pq.write_table(rows, f"{name}.parquet")
    features = plan(
        {"op": "Categorify", "columns": ["tags"]},
        {"op": "LambdaOp", "expression": "price > 2", "output": "dear", "dtype": "int8"},
    ) | {"label": ["label", "dear"], "weight": "boost", "list_weights": {"tags": "scores"}}
    data = prepared(workspace, features=features)
    pq.write_table(rows.drop_columns(["boost", "price", "rating"]), "new.parquet")
    made = apply(str(data.folder), ["new.parquet"], workspace)
    assert made.left_out == {"boost": ("boost",), "dear": ("price",), "label": ("rating",)}
    assert read(made).column("scores").to_pylist() == [[0.5] * size for size in sizes]
    assert made.schema["tags"].weights == "scores"
    pq.write_table(rows.drop_columns(["scores"]), "new.parquet")
    with pytest.raises(DataError, match=r"no column scores, required by scores"):
        apply(str(data.folder), ["new.parquet"], workspace, force=True)


def test_a_column_that_is_needed_and_missing_is_named(here, workspace):
    data = prepared(workspace)
    pq.write_table(TRAIN.drop_columns(["movie", "tags", "rating"]), "new.parquet")
    problem = r"no column movie, tags, required by item, genres, year, tags, mixed; the columns are userId, price, time"
    with pytest.raises(DataError, match=problem) as found:
        apply(str(data.folder), ["new.parquet"], workspace)
    assert "new rows need all raw columns" in str(found.value.hint)
    assert not Path("new.prepared.parquet").exists()


def test_values_that_do_not_fit_the_type_are_named(here, workspace):
    data = prepared(workspace)
    index = TRAIN.column_names.index("movie")
    pq.write_table(TRAIN.set_column(index, "movie", pa.array([2**40] * 6)), "new.parquet")
    with pytest.raises(
        DataError, match=r"new.parquet: column movie is int64, and the plan was fitted on int32: .*1099511627776"
    ):
        apply(str(data.folder), ["new.parquet"], workspace)
    pq.write_table(TRAIN.set_column(index, "movie", pa.array([[1]] * 6)), "new.parquet")
    with pytest.raises(DataError, match=r"column movie is list"):
        apply(str(data.folder), ["new.parquet"], workspace)
    assert not list(Path().glob(".*partial"))


def test_text_is_read_in_the_types_of_the_plan(here, workspace):
    data = prepared(workspace, features=plan())
    plain = TRAIN.select(["userId", "movie", "rating", "time"])
    csv.write_csv(plain.slice(0, 1).drop_columns(["rating"]), "new.csv")  # "007" and nothing that tells it is a text
    Path("new.csv").write_text(Path("new.csv").read_text().replace('"', ""))
    table = applied(data, workspace, "new.csv")
    assert table.to_pydict() == {"userId": [3], "movie": [3], "time": [60]}
    with_lists = prepared(workspace)
    Path("new.csv").write_text("userId,movie,tags,price\n007,10,x|y,1\n")
    with pytest.raises(DataError, match=r"column tags has lists, and the separator"):
        apply(str(with_lists.folder), ["new.csv"], workspace, force=True)


def test_lists_in_text_are_read_as_the_dataset_says(here, workspace):
    text = "userId,movie,tags,rating,time\n1,10,x|y,5,1\n2,20,,1,2\n"
    for name in ("train", "valid"):
        Path(f"{name}.csv").write_text(text)
    dataset = {
        "name": "files",
        "interactions": {"files": "train.csv", "lists": {"tags": "|"}, "types": {"rating": "float32"}},
    }
    split = {"method": "files", "train": "train.csv", "valid": "valid.csv"}
    features = plan({"op": "Categorify", "columns": ["tags"]})
    data = prepared(workspace, dataset=dataset, split=split, features=features)
    Path("new.csv").write_text("tags,movie,userId\ny|x|new,20,2\n")
    made = apply(str(data.folder), ["new.csv"], workspace)
    assert read(made).to_pydict() == {"tags": [[4, 3, 2]], "userId": [4], "movie": [4]}
    pq.write_table(pa.table({"tags": [["y"]], "movie": [20], "userId": [2]}), "new.parquet")
    assert applied(data, workspace, "new.parquet", force=True).to_pydict() == {
        "tags": [[4]],
        "userId": [4],
        "movie": [4],
    }


def test_every_row_comes_out_of_ops_that_choose_rows(here, workspace):
    features = plan(
        {"op": "Filter", "expression": "rating >= 2"},
        {"op": "Deduplicate", "columns": ["userId"]},
        {"op": "DifferenceLag", "columns": ["time"], "by": ["userId"], "order_by": ["time"]},
        {"op": "KCore", "columns": {"userId": 1}},
    )
    data = prepared(workspace, features=features)
    assert data.rows("train") < TRAIN.num_rows
    table = applied(data, workspace, "train.parquet")
    assert table.num_rows == TRAIN.num_rows
    assert repr(table.column("time_difference_lag_1").to_pylist()) == repr([20.0, 40.0, NAN, NAN, NAN, NAN])
    pq.write_table(TRAIN.drop_columns(["rating"]), "new.parquet")
    without = applied(data, workspace, "new.parquet")
    assert repr(without.to_pydict()) == repr(table.drop_columns(["label"]).to_pydict())


def test_drawn_rows_are_no_matter_of_new_ones(here, workspace):
    draw = {"op": "NegativeSampling", "user": "userId", "item": "movie", "num_negatives": 1}
    features = plan(draw)
    features["ops"][-1] = {"op": "LambdaOp", "expression": "sampled == 0", "output": "label", "dtype": "int8"}
    data = prepared(workspace, features=features)
    made = apply(str(data.folder), ["train.parquet"], workspace)
    assert made.left_out == {"label": ("sampled",), "sampled": ("sampled",)}
    assert made.rows == TRAIN.num_rows


@every_engine
def test_no_target_is_needed_where_it_was_learnt_from(name, here, workspace):
    features = plan({"op": "TargetEncoding", "columns": ["movie"], "target": "rating", "kfold": 1})
    data = prepared(workspace, features=features)
    whole = applied(data, workspace, "train.parquet")
    pq.write_table(TRAIN.drop_columns(["rating"]), "new.parquet")
    without = applied(data, workspace, "new.parquet", overrides=[f"etl.engine={name}"])
    assert repr(without.to_pydict()) == repr(whole.drop_columns(["label"]).to_pydict())


def test_ops_across_tables_find_what_they_need(here, workspace):
    features = {
        **FEATURES,
        "ops": [*OPS, {"op": "LambdaOp", "expression": "price - year", "output": "gap"}],
        "drop": ["year"],
    }
    data = prepared(workspace, features=features)
    whole = applied(data, workspace, "train.parquet")
    assert "year" not in whole.column_names
    flat = pa.concat_tables([pq.read_table(path) for path in data.shards("train")]).drop_columns([ROW_NUMBER])
    assert ordered(whole) == ordered(flat)
    pq.write_table(TRAIN.drop_columns(["rating"]), "new.parquet")
    without = applied(data, workspace, "new.parquet")
    assert repr(without.to_pydict()) == repr(whole.drop_columns(["label"]).to_pydict())


def test_an_op_on_several_columns_does_what_it_can(here, workspace):
    features = plan({"op": "FillMissing", "columns": ["rating", "price"], "fill_val": 1})
    data = prepared(workspace, features={**features, "drop": ["rating"]})
    pq.write_table(TRAIN.drop_columns(["rating"]), "new.parquet")
    made = apply(str(data.folder), ["new.parquet"], workspace)
    assert made.left_out == {"label": ("rating",)}
    assert read(made).column("price").to_pylist() == [1.0, 1.0, 3.0, 5.0, 2.0, 2.0]


def test_many_files_in_small_pieces_keep_their_order(here, workspace, monkeypatch):
    data = prepared(workspace)
    whole = applied(data, workspace, "train.parquet")
    monkeypatch.setattr(new_rows, "rows_per_shard", lambda *_: 2)
    pq.write_table(TRAIN.slice(0, 0), here / "empty.parquet")
    made = applied(
        data, workspace, "train.parquet", "empty.parquet", "valid.parquet", "train.parquet", output=here / "all.parquet"
    )
    valid = applied(data, workspace, "valid.parquet")
    assert repr(made.to_pydict()) == repr(pa.concat_tables([whole, valid, whole]).to_pydict())


@every_engine
def test_no_row_gives_typed_columns(name, here, workspace):
    data = prepared(workspace)
    pq.write_table(TRAIN.slice(0, 0), "empty.parquet")
    table = applied(data, workspace, "empty.parquet", overrides=[f"etl.engine={name}"])
    assert table.num_rows == 0
    assert table.schema.equals(applied(data, workspace, "train.parquet").schema)


def test_a_run_or_data_is_found_by_name_and_by_folder(here, workspace):
    data = prepared(workspace)
    run = workspace.root / "runs" / "20260101T000000-mlp-abcdef12"
    (run / "checkpoints").mkdir(parents=True)
    shutil.copy(data.folder / "config.yaml", run / "config.yaml")
    with pytest.raises(MissingArtifactError, match=r"abcdef12 is not finished"):
        find_data("abcdef12", workspace)
    write_manifest(run, "TrainedRun", {"key": "abcdef12", "data": {"key": data.key}})
    elsewhere = Workspace(here / "elsewhere")
    for name in ("20260101T000000-mlp-abcdef12", "abcdef12", "20260101", data.key, data.key[:9]):
        assert find_data(name, workspace).folder == data.folder
        with pytest.raises(MissingArtifactError, match="there are: none yet"):
            find_data(name, elsewhere)
    for path in (run, data.folder):
        assert find_data(str(path), elsewhere).folder.resolve() == data.folder.resolve()
    with pytest.raises(MissingArtifactError, match=r"no run or prepared data 'nope' in .*there are: 20260101"):
        find_data("nope", workspace)
    shutil.rmtree(data.folder)
    with pytest.raises(MissingArtifactError, match=r"the training data of 20260101") as found:
        find_data("abcdef12", workspace)
    assert str(found.value.hint).startswith("recsys etl ")


def test_files_are_not_written_over(here, workspace):
    data = prepared(workspace)
    applied(data, workspace, "train.parquet")
    with pytest.raises(ConfigError, match=r"train\.prepared\.parquet already exists"):
        apply(str(data.folder), ["train.parquet"], workspace)
    applied(data, workspace, "train.parquet", force=True)
    with pytest.raises(ConfigError, match=r"is one of the input files"):
        apply(str(data.folder), ["train.parquet"], workspace, output=here / "train.parquet", force=True)
    with pytest.raises(ConfigError, match="no files of new rows"):
        apply(str(data.folder), [], workspace)
    with pytest.raises(ConfigError, match=r"only etl\.engine, etl\.device, etl\.memory_mib go with --apply"):
        apply(str(data.folder), ["valid.parquet"], workspace, overrides=["etl.seed=1"])
    Path("bad.csv").write_text("userId,movie,time,rating\n1,10,oops,4\n")
    with pytest.raises(DataError) as found:
        apply(str(data.folder), ["bad.csv"], workspace)
    assert "on_bad_rows" not in str(found.value.hint)
    with pytest.raises(DataError, match=r"there is no file nowhere.parquet"):
        apply(str(data.folder), ["nowhere.parquet"], workspace)
    assert not (here / "nowhere.prepared.parquet").exists()


def test_renamed_roles_are_split_by_and_counted(here, workspace):
    names = {"op": "Rename", "columns": {"userId": "user", "movie": "item", "time": "at"}}
    ids = {"op": "Categorify", "columns": ["user", "item"]}
    label = {"op": "LambdaOp", "expression": "rating > 3", "output": "label"}
    features = {"user": "user", "item": "item", "label": "label", "timestamp": "at", "ops": [names, ids, label]}
    data = prepared(workspace, features=features, split={"method": "temporal", "valid": 0.2, "test": 0.2})
    at = {
        split: [v for path in data.shards(split) for v in pq.read_table(path).column("at").to_pylist()]
        for split in ("train", "valid", "test")
    }
    assert max(at["train"]) < min(at["valid"]) <= max(at["valid"]) < min(at["test"])
    assert data.manifest["cold"]["test"]["users"] == {"distinct": 2, "cold": 1}


def test_a_cluster_of_the_data_is_not_used_and_that_is_said(here):
    workspace = Workspace(here / "w")
    data = prepared(workspace)
    config = data.folder / "config.yaml"
    config.write_text(config.read_text().replace("cluster: null", "cluster: local"))
    reseal(data)
    told: list[Event] = []

    apply(str(data.folder), ["valid.parquet"], workspace, emit=told.append)

    messages = [event for event in told if isinstance(event, Message)]
    assert [message.level for message in messages if "etl.cluster" in message.text] == ["warning"]


@pytest.mark.parametrize(("value", "refused"), [(2.0**53, True), (-(2.0**53), True), (2.0**53 - 1, False)])
def test_float_ids_that_are_not_exact_are_refused_as_by_etl(value, refused, here, workspace):
    pq.write_table(TRAIN.set_column(1, "movie", TRAIN.column("movie").cast(pa.int64())), "train.parquet")
    data = prepared(workspace)
    floats = pa.array([value, 20, 20, 30, 10, 10], pa.float64())
    pq.write_table(TRAIN.set_column(1, "movie", floats), "train.parquet")
    pq.write_table(TRAIN.set_column(1, "movie", floats), "new.parquet")
    for run in (lambda: applied(data, workspace, "new.parquet").column("item"), lambda: prepared(workspace)):
        if refused:
            with pytest.raises(DataError, match=r"movie has the id .* different ids become one"):
                run()
        else:
            run()


DAY_FIRST, NOON = ["13/02/2019 12:00", "01/02/2019 12:00", "28/02/2019 12:00"], 1_549_022_400


@pytest.mark.parametrize(
    ("form", "trained", "new", "seconds"),
    [
        ("csv", DAY_FIRST, "01/02/2019 12:00", NOON),
        ("parquet", DAY_FIRST, "01/02/2019 12:00", NOON),
        ("csv", DAY_FIRST, "2019-02-01 12:00:00", NOON),
        ("csv", DAY_FIRST, NOON, NOON),
        ("parquet", [str(NOON * 1_000)] * 3, "1000", 1),
        ("csv", [NOON * 1_000] * 3, 1_000, 1),
        ("csv", [NOON * 1_000] * 3, NOON, NOON),
        ("csv", [NOON] * 3, NOON * 1_000, NOON),
        ("parquet", [NOON + 0.5] * 3, NOON * 1_000 + 500, NOON + 0.5),
        ("parquet", [NOON] * 3, datetime.fromtimestamp(NOON, UTC).replace(tzinfo=None), NOON),
    ],
)
def test_times_of_new_rows_have_the_format_of_the_fit(form, trained, new, seconds, here, workspace):
    write = pq.write_table if form == "parquet" else csv.write_csv
    write(TRAIN.select(["userId", "movie", "rating"])[:3].append_column("time", pa.array(trained)), f"old.{form}")
    write(TRAIN.select(["userId", "movie"])[:1].append_column("time", pa.array([new])), f"new.{form}")
    dataset, split = {"name": "files", "interactions": f"old.{form}"}, {"method": "random", "valid": 0, "test": 0}
    data = prepared(workspace, dataset=dataset, features=plan(), split=split)
    unit = TICKS[data.schema["time"].unit or "s"]
    assert applied(data, workspace, f"new.{form}")["time"][0].as_py() == seconds * unit
    if isinstance(new, str):
        encoder = RowEncoder(FittedPlan.read(data.folder), data.schema, only=["time"])
        assert encoder.arrays({"time": [new]})["time"] == [seconds * unit]


def test_data_of_earlier_versions_has_times_by_detection(here, workspace):
    pq.write_table(TRAIN.set_column(5, "time", pa.array(DAY_FIRST * 2)), "train.parquet")
    data = prepared(workspace, features=plan(), split={"method": "random", "valid": 0, "test": 0})
    plain = pa.schema([field.remove_metadata() for field in pq.read_schema(data.raw_columns)])
    pq.write_table(plain.empty_table(), data.raw_columns)
    reseal(data)
    for text, day in zip(DAY_FIRST[:2], (13, 1), strict=True):
        pq.write_table(TRAIN[:1].set_column(5, "time", pa.array([text])), f"{day}.parquet")
    assert applied(data, workspace, "13.parquet")["time"][0].as_py() == (NOON + 12 * 86_400) * 10**6
    with pytest.raises(DataError, match="day and month are ambiguous"):
        applied(data, workspace, "1.parquet")
