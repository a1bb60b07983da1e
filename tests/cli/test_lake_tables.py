"""Tables of lakes and databases through the commands: the prepared bytes of the CSV, versions, mistakes, secrets."""

import sys
from datetime import datetime, timedelta
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from tests.cli.conftest import Answer, Recsys

FSSPEC = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}


@pytest.fixture
def config(recsys, labelled):
    return labelled.with_suffix(".yaml")


def rows(folder: Path) -> pa.Table:
    return pyarrow.csv.read_csv(folder / "ratings.csv")


def reading(config: Path, table: object) -> str:
    """Write a config with another table of interactions; return its name."""
    settings = yaml.safe_load(config.read_text())
    settings["dataset"]["interactions"] = table
    settings["etl"] = {"engine": "polars"}
    path = config.with_name("other.yaml")
    path.write_text(yaml.safe_dump(settings))
    return path.name


def prepared(recsys: Recsys, config: str) -> dict[str, bytes]:
    made = recsys("etl", config, "--json")
    assert made.code == 0, made.err
    folder = Path(made.json["path"])
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*.parquet"))}


def iceberg_table(folder: Path, *parts: pa.Table) -> str:
    """Write an Iceberg table; return its folder. (pyiceberg's own writer takes a newer pyarrow.)"""
    (folder / "lake").mkdir()
    catalog = SqlCatalog("test", uri=f"sqlite:///{folder}/lake/catalog.db", warehouse=f"file://{folder}/lake", **FSSPEC)
    catalog.create_namespace("shop")
    kinds = {pa.int64(): LongType(), pa.string(): StringType()}
    fields = [
        NestedField(1 + n, field.name, kinds[field.type], required=False) for n, field in enumerate(parts[0].schema)
    ]
    table = catalog.create_table("shop.plays", schema=Schema(*fields))
    for number, part in enumerate(parts):
        path = folder / "lake" / f"{number}.parquet"
        ids = [field.with_metadata({"PARQUET:field_id": str(1 + n)}) for n, field in enumerate(part.schema)]
        pq.write_table(part.cast(pa.schema(ids)).rename_columns([f"old_{name}" for name in part.column_names]), path)
        file = DataFile.from_args(
            content=DataFileContent.DATA, file_path=f"file://{path}", file_format=FileFormat.PARQUET, partition=Record(),
            record_count=part.num_rows, file_size_in_bytes=path.stat().st_size, column_sizes={}, value_counts={},
            null_value_counts={}, nan_value_counts={}, lower_bounds={}, key_metadata=None,
            upper_bounds={4: to_bytes(LongType(), max(part["timestamp"].to_pylist()))},
            split_offsets=None, equality_ids=None, sort_order_id=None,
        )  # fmt: skip
        file.spec_id = 0
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
            snapshot.append_data_file(file)
    catalog.engine.dispose()
    return "lake/shop/plays"


def test_delta_iceberg_and_queries_give_the_bytes_of_the_csv(recsys, config):
    folder = config.parent
    expected = prepared(recsys, reading(config, "ratings.csv"))
    assert expected
    table = rows(folder)
    deltalake.write_deltalake("delta", table)
    with duckdb.connect("plays.duckdb") as database:
        database.execute("CREATE TABLE plays AS SELECT * FROM 'ratings.csv'")
    for source in (
        "delta",
        {"files": "delta", "format": "delta", "version": 0},
        iceberg_table(folder, table),
        {"query": "SELECT * FROM 'ratings.csv'"},
        {"query": "SELECT * FROM plays", "database": "PLAYS"},
    ):
        name = reading(config, source)
        before = recsys("etl", name)
        assert before.code == 3
        assert f"recsys download {name}, or recsys run {name}" in before.err
        made = recsys("download", name, "--json", PLAYS="plays.duckdb")
        assert made.code == 0, made.err
        assert made.json["facts"]["copies"]["interactions"]["rows"] == 600
        assert prepared(recsys, name) == expected


def test_new_version_is_a_new_dataset(recsys, config):
    table = rows(config.parent)
    deltalake.write_deltalake("delta", table.slice(0, 300), partition_by=["device"])
    name = reading(config, "delta")
    assert recsys("download", name).code == 0
    first = recsys("etl", name, "--json").json
    assert recsys("etl", name, "--json").json["up_to_date"]
    assert recsys("download", name, "--json").json["up_to_date"]

    deltalake.write_deltalake(
        "delta", table.slice(300).append_column("new", table["rating"].slice(300)), mode="append", schema_mode="merge"
    )
    assert recsys("etl", name).code == 3
    assert recsys("download", name).code == 0
    second = recsys("etl", name, "--json").json
    assert (sum(first["rows"].values()), sum(second["rows"].values())) == (300, 600)

    deltalake.DeltaTable("delta").delete("rating = 2")  # rewrites files, with types unknown to old pyarrow
    assert recsys("download", name, "--json").json["facts"]["copies"]["interactions"]["version"] == 2
    new = {**yaml.safe_load(Path(name).read_text())["dataset"], "interactions": {"files": "delta", "version": 0}}
    assert recsys("download", reading(config, new["interactions"])).code == 0
    assert recsys("etl", name, "--json").json["path"] != first["path"]


def test_since_reads_the_new_rows_of_a_lake_only(recsys, config):
    table = rows(config.parent)
    day = pa.array([datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(600)])
    parts = [table.append_column("day", day).slice(start, 300) for start in (0, 300)]
    for part in parts:
        deltalake.write_deltalake("delta", part, mode="append")
    iceberg = iceberg_table(config.parent, *(part.drop_columns("day") for part in parts))
    Path(deltalake.DeltaTable("delta", version=0).file_uris()[0]).unlink()  # nobody reads the earlier files
    Path("lake/0.parquet").unlink()
    for source, value in (("delta", {"timestamp": 1_500}), (iceberg, {"timestamp": 1_500}), ("delta", {"day": "99h"})):
        name = reading(config, {"files": source, "since": value})
        made = recsys("download", name, "--json")
        assert made.json["facts"]["copies"]["interactions"]["rows"] == 300
        assert sum(recsys("etl", name, "--json").json["rows"].values()) == 100
    refused = recsys("download", reading(config, {"files": "delta", "since": {"day": "2025-01-01"}}))
    fails(refused, 4, "has no rows since {day: 2025-01-01}")


def fails(answer: Answer, code: int, text: str) -> None:
    assert (answer.code, text in answer.err) == (code, True), answer.err


def test_mistakes_are_named_and_nothing_is_written(recsys, config, monkeypatch):
    def download(**table):
        return recsys("download", reading(config, table))

    fails(download(query="COPY (SELECT 1) TO 'out.csv'"), 2, "has to be one SELECT statement")
    fails(download(query="SELECT 1; DROP TABLE x"), 2, "has to be one SELECT statement")
    fails(download(query="SELECT * FROM nowhere"), 4, "table 'interactions' cannot be read")
    fails(download(query="SELECT 1", database="GONE"), 2, "the environment has no GONE")
    for refused in (
        download(query="SELECT 1", database="postgres://me:hunter2@host/db"),
        download(query="SELECT * FROM postgres_scan('password=hunter2', 'x')"),
    ):
        fails(refused, 2, "dataset.interactions")
        assert "hunter2" not in refused.out + refused.err
    fails(download(query="SELECT 1", files="ratings.csv"), 2, "either files or a query")
    fails(download(files="nowhere", format="delta"), 4, "table 'interactions' cannot be read")
    fails(download(files="nowhere", format="iceberg"), 4, "table 'interactions' cannot be read")
    fails(download(files="ratings.csv", version=3), 2, "version is for Delta and Iceberg")
    monkeypatch.setenv("PLAYS", "file://u:hunter2@host/db")
    refused = download(query="SELECT 1", database="PLAYS")
    fails(refused, 2, "scheme")
    assert "hunter2" not in refused.out + refused.err
    assert not Path("out.csv").exists()
    for package, table in (("deltalake", {"files": "x", "format": "delta"}), ("duckdb", {"query": "SELECT 1"})):
        monkeypatch.setitem(sys.modules, package, None)
        fails(download(**table), 5, "pip install 'recsys-cli[lake]'")


def test_damaged_table_is_refused(recsys, config):
    deltalake.write_deltalake("delta", rows(config.parent))
    next(Path("delta").glob("*.parquet")).unlink()
    fails(recsys("download", reading(config, "delta")), 4, "table 'interactions' cannot be read")
    assert not list(Path("workspace/raw").rglob("interactions.parquet"))


def test_partitioned_folder_through_the_commands(recsys, config):
    lines = config.with_suffix(".csv").read_text().splitlines()
    for day, part in (("2024-01-01", lines[1:301]), ("2024-01-02", lines[301:])):
        Path(f"plays/dt={day}").mkdir(parents=True)
        Path(f"plays/dt={day}/part.csv").write_text("\n".join([lines[0], *part]) + "\n")
    expected = prepared(recsys, reading(config, "ratings.csv"))
    name = reading(config, "plays")
    assert prepared(recsys, name) == expected

    settings = yaml.safe_load(Path(name).read_text())
    settings["features"]["ops"].insert(0, {"op": "Categorify", "columns": ["dt"]})
    Path(name).write_text(yaml.safe_dump(settings))
    made = recsys("etl", name, "--json").json
    assert "dt" in made["vocabularies"]
    assert recsys("etl", "--apply", made["path"], "plays", "--json").json["rows"] == 600
    assert (
        sum(recsys("etl", reading(config, {"files": "plays", "since": {"dt": "1s"}}), "--json").json["rows"].values())
        == 300
    )
