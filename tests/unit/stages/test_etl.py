"""The etl stage: artifacts of real and hand-made data, repeated calls, and leftovers."""

import json
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.features.columns import ROW_NUMBER, SHARED_ID, USER_HASH, row_column
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl, prepared_data
from recsys_cli.workspace import PreparedData

RECIPE = {
    "user": "userId",
    "item": "movieId",
    "label": "label",
    "timestamp": "timestamp",
    "ops": [
        {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genres"]},
        {"op": "Categorify", "columns": ["userId", "movieId", "genres"]},
        {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
    ],
}
MOVIE_ROW = row_column("movieId")


def rows(data: PreparedData, split: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in data.shards(split)])


@pytest.fixture
def own_files(tmp_path, monkeypatch):
    """A config over four users' own files; items 10 and 20 are equally frequent in train."""
    monkeypatch.chdir(tmp_path)
    train = [(1, 20, 4), (2, 10, 3), (1, 10, 5), (2, 20, 1), (3, 30, 4)]
    files = {"train": train, "valid": [(9, 10, 4), (1, 99, 2), (1, 30, 5)]}
    for split, ratings in files.items():
        users, items, ratings_ = zip(*ratings, strict=True)
        times = list(range(len(users)))
        table = {"userId": users, "movieId": items, "rating": pa.array(ratings_, pa.float32()), "timestamp": times}
        pq.write_table(pa.table(table), f"{split}.parquet")
    movies = {"movieId": [10, 20, 99, 40], "genres": [["b", "a"], ["a"], ["z"], ["never"]]}
    pq.write_table(pa.table(movies), "movies.parquet")
    return {
        "dataset": {"name": "files", "interactions": "train.parquet", "tables": {"movies": "movies.parquet"}},
        "split": {"method": "files", "train": "train.parquet", "valid": "valid.parquet"},
        "features": RECIPE,
    }


def test_etl_of_known_data(own_files, workspace):
    made = etl(RunConfig.model_validate(own_files), workspace)

    data = made.artifact
    vocabularies = {name: pq.read_table(data.vocabulary(name)).to_pydict() for name in ("userId", "movieId", "genres")}
    assert vocabularies["userId"] == {"value": [1, 2, 3], "count": [2, 2, 1]}
    assert vocabularies["movieId"] == {"value": [10, 20, 30], "count": [2, 2, 1]}
    assert vocabularies["genres"] == {"value": ["a", "b"], "count": [4, 2]}
    assert pq.read_table(data.table("movieId")).to_pydict() == {
        "genres": [[], [], [], [4, 3], [3], [], [2], [2]], SHARED_ID: [0, 1, 2, 3, 4, 5, 2, 2],
    }  # fmt: skip
    assert rows(data, "valid").drop_columns([USER_HASH]).to_pydict() == {
        "userId": [2, 3, 3], "movieId": [3, 2, 5], "label": [1, 0, 1], "timestamp": [0, 1, 2],
        ROW_NUMBER: [5, 6, 7], MOVIE_ROW: [3, 7, 5],
    }  # fmt: skip
    train = rows(data, "train")
    assert sorted(zip(*train.to_pydict().values(), strict=True)) == [
        (3, 3, 1, 2, 2), (3, 4, 1, 0, 0), (4, 3, 0, 1, 1), (4, 4, 0, 3, 3), (5, 5, 1, 4, 4),
    ]  # fmt: skip
    manifest = data.manifest
    assert manifest["rows"] == {"train": 5, "valid": 3, "test": 0}
    assert manifest["quality"]["valid"]["movieId"] == {"null": 0, "unseen": 1, "values": 3}
    assert manifest["cold"]["valid"] == {"users": {"distinct": 2, "cold": 1}, "items": {"distinct": 3, "cold": 1}}


def test_etl_flat_layout_writes_what_star_gathers(own_files, workspace):
    star = etl(RunConfig.model_validate(own_files), workspace).artifact
    flat = etl(RunConfig.model_validate({**own_files, "etl": {"layout": "flat"}}), workspace).artifact

    table = pq.read_table(star.table("movieId"))
    for split in ("train", "valid"):
        gathered = table.take(rows(star, split).column("movieId" if split == "train" else MOVIE_ROW))
        assert rows(flat, split).column("genres").to_pylist() == gathered.column("genres").to_pylist()
    assert flat.schema["genres"].table is None
    assert pq.read_table(flat.table("movieId")) == table


def test_etl_is_not_redone_until_something_changes(own_files, workspace):
    config = RunConfig.model_validate(own_files)
    first = etl(config, workspace)

    assert not first.up_to_date
    assert etl(config, workspace).up_to_date
    assert etl(RunConfig.model_validate({**own_files, "etl": {"engine": "polars"}}), workspace).up_to_date
    assert not etl(config, workspace, force=True).up_to_date
    assert prepared_data(config, workspace) == first.artifact

    pq.write_table(pq.read_table("train.parquet").slice(1), "train.parquet")
    assert not etl(config, workspace).up_to_date


def test_etl_leaves_nothing_behind(own_files, workspace, tmp_path):
    before = set(tmp_path.iterdir())
    etl(RunConfig.model_validate(own_files), workspace)

    assert set(tmp_path.iterdir()) - before == {workspace.root}
    assert {path.name for path in workspace.root.iterdir()} == {"data", ".checksums.json", ".locks", ".scratch"}
    assert list((workspace.root / ".scratch").iterdir()) == []


def test_etl_that_fails_leaves_no_artifact(own_files, workspace):
    movies = pa.table({"movieId": [10, 10, 20, 20], "genres": [["a"], ["b"], [], []]})
    pq.write_table(movies, "movies.parquet")
    config = RunConfig.model_validate(own_files)

    with pytest.raises(DataError, match=r"2 duplicate keys in movies.movieId: 10, 20"):
        etl(config, workspace)
    with pytest.raises(MissingArtifactError, match="is not prepared"):
        prepared_data(config, workspace)


def test_etl_names_the_file_that_differs_from_the_others(own_files, workspace):
    whole = pq.read_table("valid.parquet")
    config = RunConfig.model_validate(own_files)

    pq.write_table(whole.drop_columns(["rating"]), "valid.parquet")
    with pytest.raises(DataError, match=r"valid.parquet: no column rating; it has userId, movieId, timestamp"):
        etl(config, workspace)

    pq.write_table(whole.set_column(0, "userId", pa.array(["a", "b", "c"])), "valid.parquet")
    with pytest.raises(DataError, match=r"differ in their types: .* as a scalar of type int64") as found:
        etl(config, workspace)
    assert "userId int64" in str(found.value.hint)


def test_etl_skips_bad_rows_and_keeps_them(tmp_path, workspace, monkeypatch):
    folder = workspace.raw("movielens-latest-small").folder
    folder.mkdir(parents=True)
    zipped = tmp_path / "ml.zip"
    _write_zip(
        zipped, "userId,movieId,rating,timestamp\n" + "".join(f"{n},1,4.0,{n}\n" for n in range(9)) + "9,1,bad,9\n"
    )
    config = RunConfig.model_validate(
        {"dataset": {"name": "movielens-latest-small"}, "features": RECIPE, "etl": {"on_bad_rows": "skip"}}
    )
    download(config.dataset, workspace, from_file=zipped)

    data = etl(config, workspace).artifact

    assert data.manifest["bad_rows"] == 1
    assert sum(data.manifest["rows"].values()) == 9
    rejected = json.loads((data.folder / "rejected.jsonl").read_text())
    assert (rejected["line"], rejected["column"]) == (11, "rating")


def test_etl_needs_its_dataset(workspace):
    config = RunConfig.model_validate({"dataset": {"name": "movielens-1m"}, "features": RECIPE})

    with pytest.raises(MissingArtifactError, match="movielens-1m is missing") as found:
        etl(config, workspace)
    assert "recsys download movielens-1m" in str(found.value.hint)


def test_etl_of_real_movielens_equals_a_plain_count(workspace, shared_data):
    config = RunConfig.model_validate({"dataset": {"name": "movielens-latest-small"}, "features": RECIPE})
    download(config.dataset, workspace, from_file=shared_data / "ml-latest-small.zip")

    data = etl(config, workspace).artifact

    raw = csv.read_csv(workspace.raw("movielens-latest-small").folder / "ratings.csv")
    names = ("userId", "movieId", "timestamp")
    label_of = dict(
        zip(
            zip(*(raw[n].to_pylist() for n in names), strict=True),
            pc.greater(raw["rating"], 3).to_pylist(),
            strict=True,
        )
    )
    train = rows(data, "train")
    values = {name: pq.read_table(data.vocabulary(name)) for name in ("userId", "movieId")}
    decoded = [values[n]["value"].take(pa.array(train[n].to_numpy() - 3)).to_pylist() for n in values]
    keys = list(zip(*decoded, train["timestamp"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys) == data.rows("train") == 100_836 - data.rows("valid") - data.rows("test")
    assert [label_of[key] for key in keys] == [label == 1 for label in train["label"].to_pylist()]
    counts = sorted(Counter(decoded[1]).items(), key=lambda pair: (-pair[1], pair[0]))
    assert list(zip(*values["movieId"].to_pydict().values(), strict=True)) == counts


def _write_zip(path: Path, ratings: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-latest-small/ratings.csv", ratings)
        archive.writestr("ml-latest-small/movies.csv", "movieId,title,genres\n1,A,x|y\n")


def with_categorify(own_files: dict, **options: object) -> RunConfig:
    """Return the config with other options of its Categorify."""
    join, encode, label = RECIPE["ops"]
    return RunConfig.model_validate(own_files | {"features": RECIPE | {"ops": [join, {**encode, **options}, label]}})


def test_a_given_vocabulary_is_part_of_what_the_data_depends_on(own_files, workspace):
    config = with_categorify(own_files, vocabs={"genres": "genres.txt"})
    Path("genres.txt").write_text("never\na\n", encoding="utf-8")
    first = etl(config, workspace)

    assert etl(config, workspace).up_to_date
    assert pq.read_table(first.artifact.table("movieId")).column("genres").to_pylist() == [
        [], [], [], [2, 4], [4], [], [3], [2],
    ]  # fmt: skip

    Path("genres.txt").write_text("a\nnever\n", encoding="utf-8")
    assert not etl(config, workspace).up_to_date

    Path("genres.txt").unlink()
    with pytest.raises(DataError, match=r"genres\.txt: cannot be read: No such file"):
        etl(config, workspace)


def test_what_buckets_hold_is_counted_as_unseen(own_files, workspace):
    made = etl(with_categorify(own_files, freq_threshold=2, num_buckets=4), workspace)

    data, manifest = made.artifact, made.artifact.manifest
    assert {column.name: column.cardinality for column in data.schema.categorical} == {
        "userId": 9, "movieId": 9, "genres": 9,
    }  # fmt: skip
    assert pq.read_table(data.table("movieId")).num_rows == 9 + 2
    assert manifest["quality"]["train"]["movieId"] == {"null": 0, "unseen": 1, "values": 5}
    assert manifest["quality"]["valid"]["movieId"] == {"null": 0, "unseen": 2, "values": 3}
    assert manifest["vocabularies"] == {"userId": 2, "movieId": 2, "genres": 2}


def test_a_joint_vocabulary_is_written_once(own_files, workspace):
    join, _, label = RECIPE["ops"]
    ops = [join, {"op": "Categorify", "columns": ["userId", "movieId"], "joint": True}, label]
    features = RECIPE | {"ops": ops, "drop": ["genres"]}
    made = etl(RunConfig.model_validate(own_files | {"features": features}), workspace)

    data = made.artifact
    assert pq.read_table(data.vocabulary("userId_movieId")).to_pydict() == {
        "value": [1, 2, 10, 20, 3, 30], "count": [2, 2, 2, 2, 1, 1],
    }  # fmt: skip
    assert [path.name for path in (data.folder / "vocab").iterdir()] == ["userId_movieId.parquet"]
    assert data.manifest["cold"]["valid"] == {"users": {"distinct": 2, "cold": 1}, "items": {"distinct": 3, "cold": 1}}
