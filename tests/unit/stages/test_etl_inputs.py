"""However the same interactions are stored, the same data is prepared."""

import gzip
import json
import re
import zipfile
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.stages.etl import data_key, etl
from recsys_cli.workspace import PreparedData, Workspace

RNG = np.random.default_rng(7)
NUM_ROWS = 2_000
INTERACTIONS = pa.table({
    "user": RNG.integers(0, 60, NUM_ROWS),
    "item": [f"i{item}" for item in RNG.integers(0, 40, NUM_ROWS)],
    "rating": RNG.integers(1, 11, NUM_ROWS) / 2,
    "time": RNG.permutation(NUM_ROWS),
})  # fmt: skip
ITEMS = pa.table(
    {"item": [f"i{item}" for item in range(40)], "tags": [[f"t{item % 3}"] * (item % 4) for item in range(40)]}
)
FEATURES = {
    "user": "user", "item": "item", "label": "label", "timestamp": "time",
    "ops": [
        {"op": "JoinExternal", "table": "items", "on": "item", "columns": ["tags"]},
        {"op": "Categorify", "columns": ["user", "item", "tags"]},
        {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
    ],
}  # fmt: skip


def as_csv(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    csv.write_csv(rows, sink)
    return sink.getvalue().to_pybytes()


@pytest.fixture(autouse=True)
def stored(tmp_path, monkeypatch):
    """The interactions in the working directory in every format, and `items.parquet`."""
    monkeypatch.chdir(tmp_path)
    text = as_csv(INTERACTIONS)
    Path("one.csv").write_bytes(text)
    Path("one.csv.gz").write_bytes(gzip.compress(text))
    with pa.CompressedOutputStream("one.csv.zst", "zstd") as packed:
        packed.write(text)
    Path("one.tsv").write_bytes(text.replace(b",", b"\t"))
    Path("odd.txt").write_bytes(text.partition(b"\n")[2].replace(b",", b"::").replace(b'"', b""))
    for folder in ("many", "mixed"):
        Path(folder).mkdir()
    for number in range(5):
        part = as_csv(INTERACTIONS.slice(400 * number, 400))
        Path(f"many/{number}.csv").write_bytes(part)
        Path(f"mixed/{number}.csv.gz" if number % 2 else f"mixed/{number}.csv").write_bytes(
            gzip.compress(part) if number % 2 else part
        )
    pq.write_table(INTERACTIONS, "one.parquet")
    pq.write_table(INTERACTIONS, "tiny.parquet", row_group_size=3)
    odd = INTERACTIONS.set_column(1, "item", INTERACTIONS["item"].dictionary_encode()).select(
        ["time", "item", "rating", "user"]
    )
    pq.write_table(odd.append_column("more", pa.array([{"a": 1}] * NUM_ROWS)), "odd.parquet", row_group_size=700)
    pq.write_table(ITEMS, "items.parquet")
    with zipfile.ZipFile("one.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one.csv", text)
    memory = fsspec.filesystem("memory")
    memory.pipe("/inputs/one.csv", text)
    memory.pipe("/inputs/one.parquet", Path("tiny.parquet").read_bytes())
    yield
    memory.rm("/inputs", recursive=True)


def config(interactions: object, *, tables: object = "items.parquet", **sections: object) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": interactions, "tables": {"items": tables}},
        "split": {"method": "temporal", "valid": 0.1, "test": 0.1},
        "features": FEATURES,
        # Rows are estimated, to the line of a header, so the number of shards is the same for all of these.
        "etl": {"shard_rows": 600},
        **sections,
    })  # fmt: skip


def prepared(data: PreparedData) -> dict[str, bytes]:
    """Return the files for training by name, without config and manifest."""
    files = [path for path in sorted(data.folder.rglob("*")) if path.suffix == ".parquet" or path.name == "schema.json"]
    return {str(path.relative_to(data.folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Prepared data of one plain file."""
    folder = tmp_path_factory.mktemp("expected")
    (folder / "one.csv").write_bytes(as_csv(INTERACTIONS))
    pq.write_table(ITEMS, folder / "items.parquet")
    wanted = config(str(folder / "one.csv"), tables=str(folder / "items.parquet"))
    found = prepared(etl(wanted, Workspace(folder / "workspace")).artifact)
    assert len([name for name in found if name.startswith("train/")]) == 4
    return found


@pytest.mark.parametrize(
    "interactions",
    [
        "one.csv.gz", "one.csv.zst", "one.tsv", "many/*.csv", "many", ["many/0.csv", "many/[1-4].csv"], "mixed",
        "one.parquet", "tiny.parquet", "odd.parquet", "memory://inputs/one.csv", "memory://inputs/*.parquet",
        "zip://one.csv::one.zip", {"files": "odd.txt", "separator": "::", "names": ["user", "item", "rating", "time"]},
    ],
    ids=str,
)  # fmt: skip
def test_same_rows_are_prepared_the_same(interactions, workspace, expected):
    made = etl(config(interactions), workspace)

    assert not made.up_to_date
    assert prepared(made.artifact) == expected


def test_joined_tables_come_in_every_way_too(workspace, expected):
    text = b"item,tags,more\n" + b"".join(
        f"{item},{'|'.join(tags) or '-'},x\n".encode() for item, tags in zip(*ITEMS.to_pydict().values(), strict=True)
    )
    Path("items.csv.gz").write_bytes(gzip.compress(text))
    options = {"files": "items.csv.gz", "lists": {"tags": {"separator": "|", "empty": "-"}}}
    assert prepared(etl(config("one.csv", tables=options), workspace).artifact) == expected

    fixed = ITEMS.append_column("vector", pa.array([[[1.0]]] * 40)).set_column(
        1, "tags", ITEMS["tags"].cast(pa.large_list(pa.large_string()))
    )
    pq.write_table(fixed, "nested.parquet", row_group_size=2)
    assert prepared(etl(config("one.csv", tables="nested.parquet"), workspace).artifact) == expected


def test_memory_and_chunks_change_nothing(workspace, expected, monkeypatch):
    monkeypatch.setattr("recsys_cli.etl.reading.reader.chunk_bytes", lambda *_: 1_000)

    for interactions in ("one.csv", "mixed", "tiny.parquet"):
        small = etl(config(interactions, etl={"shard_rows": 600, "memory_mib": 256}), workspace, force=True)
        assert prepared(small.artifact) == expected


def test_given_splits_are_written_as_the_dataset_is(workspace):
    for name, rows in (("train", INTERACTIONS[:1500]), ("valid", INTERACTIONS[1500:])):
        Path(f"{name}.csv.gz").write_bytes(gzip.compress(as_csv(rows).replace(b",", b";")))
        pq.write_table(rows, f"{name}.parquet")
    semicolons = {"files": "train.csv.gz", "separator": ";", "types": {"rating": "float64"}}

    def split(suffix):
        return {"method": "files", "train": f"train{suffix}", "valid": f"valid{suffix}"}

    of_text = etl(config(semicolons, split=split(".csv.gz")), workspace).artifact
    assert of_text.rows("valid") == 500
    assert prepared(of_text) == prepared(etl(config(semicolons, split=split(".parquet")), workspace).artifact)
    assert prepared(of_text) == prepared(etl(config("train.parquet", split=split(".parquet")), workspace).artifact)


def test_positions_go_on_in_the_file_of_the_next_split(workspace):
    for split, lines in (("train", "a x y\nb y z x\n"), ("valid", "a z\n"), ("test", "b w\na w\n")):
        Path(f"{split}.txt").write_text(lines)
    lists = {"separator": " ", "quote": None, "names": ["user", "item"], "lists": {"item": " "}, "explode": "item"}
    given = config(
        {"files": "train.txt", **lists, "order": "at"},
        split={"method": "files", **{split: f"{split}.txt" for split in ("train", "valid", "test")}},
        features={
            "user": "user", "item": "item", "label": "label", "timestamp": "at",
            "ops": [
                {"op": "Categorify", "columns": ["user", "item"]},
                {"op": "LambdaOp", "expression": "1", "output": "label", "dtype": "int8"},
            ],
        },
    )  # fmt: skip
    data = etl(given, workspace).artifact
    assert [pq.read_table(data.folder / split)["at"].to_pylist() for split in ("valid", "test")] == [[5], [6, 7]]
    assert "later row of the same user" not in data.report.read_text()


def test_a_leak_is_refused_though_its_data_is_prepared(workspace):
    ops = [*FEATURES["ops"], {"op": "Normalize", "columns": ["rating"]}]
    leaking = config("one.csv", features={**FEATURES, "ops": ops, "known": ["rating"]})
    etl(leaking, workspace)
    with pytest.raises(ConfigError, match="'rating' leaks the label 'label'"):
        etl(config("one.csv", features={**FEATURES, "ops": ops}), workspace)


def test_key_depends_on_how_files_are_read(workspace):
    def key(**options):
        return data_key(config({"files": "one.csv", **options}), workspace)

    assert key() == data_key(config("one.csv"), workspace) == data_key(config(["one.csv"]), workspace)
    others = [key(types={"user": "string"}), key(lists={"item": "i"}), key(quote=None), key(encoding="latin-1")]
    assert len({key(), *others}) == 5


def in_seconds(data: PreparedData, split: str) -> pa.Table:
    rows = pa.concat_tables([pq.read_table(path) for path in data.shards(split)])
    seconds = pc.divide(rows["time"], data.schema.ticks)
    assert seconds[0].as_py() >= 1_700_000_000
    return rows.set_column(rows.column_names.index("time"), "time", seconds)


def test_times_and_truth_values_are_the_same_in_text_and_parquet(workspace):
    seconds = (1_700_000_000 + INTERACTIONS["time"].to_numpy() * 3600).astype("datetime64[s]")
    rows = INTERACTIONS.set_column(3, "time", pa.array(seconds)).set_column(
        2, "liked", pc.greater(INTERACTIONS["rating"], 3)
    )
    pq.write_table(rows, "times.parquet")
    zoned = rows.set_column(3, "time", rows["time"].cast(pa.timestamp("ms", "UTC")))
    pq.write_table(zoned, "zoned.parquet")
    Path("times.csv").write_bytes(as_csv(rows))
    Path("zoned.csv").write_bytes(as_csv(zoned))
    label = {"op": "LambdaOp", "expression": "if(liked, 1, 0)", "output": "label", "dtype": "int8"}
    features = {**FEATURES, "ops": [*FEATURES["ops"][:2], label]}

    made = [etl(config(name, features=features), workspace).artifact for name in ("times.parquet", "zoned.parquet")]
    made += [etl(config(name, features=features), workspace).artifact for name in ("times.csv", "zoned.csv")]
    # Times keep their unit: milliseconds in parquet and microseconds in text. What went in is kept too, with its type there.
    units = [data.schema["time"].unit for data in made]
    assert units == ["ms", "ms", "us", "us"]
    for split in ("train", "valid", "test"):
        first, *others = (in_seconds(data, split) for data in made)
        assert all(other.equals(first) for other in others)
    fixed = ({n: c for n, c in prepared(d).items() if n.startswith(("vocab", "tables"))} for d in made)
    assert len(set(map(repr, fixed))) == 1


def test_ids_with_leading_zeros_are_kept(workspace):
    Path("zeros.csv").write_text(re.sub(r'"i(\d+)"', r"00\1", as_csv(INTERACTIONS).decode()))
    items = {"files": "zero_items.csv", "lists": {"tags": "|"}}
    Path("zero_items.csv").write_text("item,tags\n" + "".join(f"00{item},t\n" for item in range(40)))

    data = etl(config("zeros.csv", tables=items), workspace).artifact
    assert "0017" in pq.read_table(data.vocabulary("item"))["value"].to_pylist()


@pytest.mark.parametrize(
    ("name", "column", "shown"),
    [
        ("big.csv", "item", r"1e\+18, a double: from 2\^53"),
        ("big.jsonl", "item", r"1e\+25, a double: from 2\^53"),
        ("big.parquet", "item", r"1e\+18, a double: from 2\^53"),
        ("short.parquet", "user", r"167772\d\d\.0, a float: from 2\^24"),
    ],
)
def test_float_ids_that_would_merge_are_refused(workspace, name, column, shown):
    rows = INTERACTIONS.to_pylist()
    for row in rows:
        row["item"] = int(row["item"][1:]) + (10**25 if name == "big.jsonl" else 10**18)
    if name == "big.csv":
        lines = [f"{row['user']},{row['item']}.0,{row['rating']},{row['time']}\n" for row in rows]
        Path(name).write_text("user,item,rating,time\n" + "".join(lines))
    elif name == "big.jsonl":
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif name == "big.parquet":
        items = pa.array([float(row["item"]) for row in rows])
        pq.write_table(INTERACTIONS.set_column(1, "item", items), name)
    else:
        users = pa.array([2.0**24 + row["user"] for row in rows], pa.float32())
        pq.write_table(INTERACTIONS.set_column(0, "user", users), name)
    ops = [{"op": "Categorify", "columns": ["user", "item"]}, FEATURES["ops"][2]]

    with pytest.raises(DataError, match=rf"column {column} has the id {shown}") as raised:
        etl(config(name, features={**FEATURES, "ops": ops}), workspace)
    assert "write ids as text or whole numbers" in str(raised.value.hint)
    if name == "big.csv":  # the remedy of the hint
        assert "types: {item: string}" in str(raised.value.hint)
        as_text = config({"files": name, "types": {"item": "string"}}, features={**FEATURES, "ops": ops})
        items = pq.read_table(etl(as_text, workspace).artifact.vocabulary("item"))["value"]
        assert set(items.to_pylist()) <= {f"{10**18 + item}.0" for item in range(40)}
        assert len(items) == 40


@pytest.mark.parametrize("key", [2.0**53 - 1, None, float("nan")])
def test_keys_of_a_table_are_as_exact_as_ids(workspace, key):
    numbers = pa.array([float(item[1:]) for item in INTERACTIONS["item"].to_pylist()])
    pq.write_table(INTERACTIONS.set_column(1, "item", numbers), "numbers.parquet")
    for last, is_exact in ((key, True), (2.0**53, False)):
        keys = pa.array([*map(float, range(40)), last], from_pandas=False)
        pq.write_table(pa.table({"item": keys, "tags": [["a"]] * 41}), "keys.parquet")
        if is_exact:
            etl(config("numbers.parquet", tables="keys.parquet"), workspace)
            continue
        with pytest.raises(DataError, match=r"table 'items': column item has the id 9007199254740992\.0"):
            etl(config("numbers.parquet", tables="keys.parquet"), workspace)


def test_truncated_archive_prepares_nothing(workspace):
    Path("half.csv.gz").write_bytes(Path("one.csv.gz").read_bytes()[:-500])

    with pytest.raises(DataError, match=r"half\.csv\.gz: cannot be read to its end"):
        etl(config("half.csv.gz"), workspace)
    assert workspace.all_data() == []


def test_column_that_no_op_can_take_is_named(workspace):
    pq.write_table(ITEMS.set_column(1, "tags", pa.array([[["t"]]] * 40)), "nested.parquet")

    with pytest.raises((ConfigError, DataError), match="tags"):
        etl(config("one.csv", tables="nested.parquet"), workspace)
