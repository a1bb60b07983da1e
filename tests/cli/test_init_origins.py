"""`recsys init` on packed files, archives, URLs, globs, lakes and databases."""

import gzip
import io
import os
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import deltalake
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from recsys_cli.config import RunConfig, load
from tests.cli.conftest import Recsys
from tests.cli.test_lake_tables import iceberg_table

ITEMS = "id,kind\n" + "".join(f"{item},k{item % 3}\n" for item in range(20))


@pytest.fixture
def plays():
    """Interactions as CSV."""
    rng = np.random.default_rng(2)
    rows = zip(rng.integers(0, 30, 400), rng.integers(0, 20, 400), range(400), strict=True)
    return "user_id,item_id,timestamp\n" + "".join(f"{u},{i},{1_600_000_000 + 60 * t}\n" for u, i, t in rows)


@pytest.fixture
def server(tmp_path):
    """A web server of the working directory, without range requests."""

    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *_): ...

        def translate_path(self, path):
            return super().translate_path("/plays.csv" if path.startswith("/aaa") else path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(tmp_path))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def pack(text: str) -> None:
    """Write the interactions packed in several ways, and with items in archives."""
    Path("p.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pa.OSFile("p.csv.zst", "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as out:
        out.write(text.encode())
    members = {"in/plays.csv": text, "README.md": "# plays", "in/items.csv": ITEMS}
    with zipfile.ZipFile("p.zip", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with tarfile.open("p.tar.gz", "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content.encode()))
    head, *lines = text.splitlines(keepends=True)
    for number in range(2):
        Path(f"part-{number}.csv").write_text(head + "".join(lines[number::2]))


def proposed(recsys: Recsys, *arguments: str) -> RunConfig:
    answer = recsys("init", *arguments, "--yes", "-o", "mine.yaml")
    assert answer.code == 0, answer.err
    assert recsys("validate", "mine.yaml").code == 0
    return load(Path("mine.yaml"))


@pytest.mark.parametrize("name", ["p.csv.gz", "p.csv.zst", "p.zip", "p.tar.gz", "part-*.csv"])
def test_packed_files_archives_and_globs(recsys, plays, name):
    pack(plays)
    config = proposed(recsys, name)
    assert [op.joined_by for op in config.features.joins] == (["item_id"] if name in {"p.zip", "p.tar.gz"} else [])
    made = recsys("--json", "etl", "mine.yaml")
    assert made.code == 0, made.err
    assert sum(made.json["rows"].values()) > 200


@pytest.mark.parametrize("name", ["p.csv.gz", "p.tar.gz", "part-*.csv"])
def test_urls_of_a_web_server(recsys, plays, server, name):
    pack(plays)
    assert proposed(recsys, f"{server}/{name}").features.item == "item_id"
    made = recsys("--json", "etl", "mine.yaml")
    assert made.code == 0, made.err


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("part-*.csv", "part"), ("*.csv", "part_0"), ("p.csv.gz?key=a/b.c", "p"), ("p.tar.gz", "plays")],
)
def test_the_config_of_a_url_has_a_plain_name(recsys, plays, server, pattern, name):
    pack(plays)
    answer = recsys("--json", "init", f"{server}/{pattern}", "--yes")
    assert answer.code == 0, answer.err
    assert [path.name for path in Path().glob("*.yaml")] == [f"{name}.yaml"]


def test_a_missing_url_names_itself(recsys, server):
    answer = recsys("init", f"{server}/none.csv", "--yes")
    assert answer.code == 2
    assert f"no file {server}/none.csv" in answer.err


def test_a_delta_table_and_its_items(recsys, plays):
    deltalake.write_deltalake("plays", pyarrow.csv.read_csv(io.BytesIO(plays.encode())))
    deltalake.write_deltalake("items", pyarrow.csv.read_csv(io.BytesIO(ITEMS.encode())))
    config = proposed(recsys, "plays", "items")
    assert config.dataset.options["tables"] == {"items": {"files": "items", "rename": {"id": "item_id"}}}
    assert recsys("download", "mine.yaml").code == 0
    assert recsys("etl", "mine.yaml").code == 0


def test_an_iceberg_table(recsys, plays):
    folder = iceberg_table(Path.cwd(), pyarrow.csv.read_csv(io.BytesIO(plays.encode())))
    assert proposed(recsys, folder).split.method == "temporal"


def test_a_database_and_a_query(recsys, plays, monkeypatch):
    Path("plays.csv").write_text(plays)
    Path("items.csv").write_text(ITEMS)
    with duckdb.connect("shop.db") as connection:
        for name in ("plays", "items"):
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{name}.csv'")
    answer = recsys("init", "shop.db", "--yes")
    assert answer.code == 2
    assert 'export SHOP=shop.db, then recsys init "$SHOP"' in answer.err
    monkeypatch.setenv("SHOP", "shop.db")
    config = proposed(recsys, "shop.db")
    assert config.dataset.options["interactions"] == {"query": 'SELECT * FROM "main"."plays"', "database": "SHOP"}
    assert len(config.features.joins) == 1
    text = "SELECT user_id, item_id AS product FROM plays"
    assert recsys("init", "shop.db", text, "--yes", "-o", "query.yaml").code == 0
    assert load(Path("query.yaml")).dataset.options["interactions"] == {"query": text, "database": "SHOP"}
    assert recsys("init", "SELECT * FROM 'plays.csv'", "--yes", "-o", "files.yaml").code == 0
    answer = recsys("init", "postgres://me:secret@host/shop", "--yes")
    assert answer.code == 2
    assert "secret" not in answer.err


def test_columns_of_structs_are_left_out(recsys, plays, monkeypatch):
    Path("plays.csv").write_text(plays)
    with duckdb.connect("shop.db") as connection:
        shown = '*, {\'a\': 1} AS info, MAP {\'k\': 1} AS "the map", [1] AS list, item_id AS "a ""b"""'
        connection.execute(f"CREATE TABLE plays AS SELECT {shown} FROM 'plays.csv'")
    monkeypatch.setenv("SHOP", "shop.db")
    config = proposed(recsys, "shop.db")
    query = 'SELECT "user_id", "item_id", "timestamp", "list", "a ""b""" FROM "main"."plays"'
    assert config.dataset.options["interactions"] == {"query": query, "database": "SHOP"}
    assert recsys("run", "mine.yaml", "model={name: popularity}").code == 0


def test_a_table_of_structs_alone_is_named_and_not_used(recsys, plays, monkeypatch):
    Path("plays.csv").write_text(plays)
    with duckdb.connect("shop.db") as connection:
        connection.execute("CREATE TABLE plays AS SELECT * FROM 'plays.csv'")
        connection.execute("CREATE TABLE clients AS SELECT {'user': 1} AS client FROM range(1000)")
    monkeypatch.setenv("SHOP", "shop.db")
    answer = recsys("init", "shop.db", "--yes")
    assert answer.code == 0
    assert "table clients is not used: its columns have no values" in answer.out + answer.err
    assert load(Path("plays.yaml")).dataset.options["interactions"]["query"] == 'SELECT * FROM "main"."plays"'


def test_a_table_that_is_not_used_is_named_with_its_file(recsys, plays):
    Path("plays.csv").write_text(plays)
    Path("feedback.csv").write_text("session,kind\n" + "7,view\n8,click\n" * 100)
    answer = recsys("init", "plays.csv", "feedback.csv", "--yes")
    assert answer.code == 0
    assert "(feedback.csv) is not used: no column has another id in each row" in answer.out + answer.err


def test_tables_of_one_name_are_all_there(recsys, plays, monkeypatch):
    Path("plays.csv").write_text(plays)
    for name in ("a", "b"):
        with duckdb.connect(f"{name}.db") as connection:
            connection.execute(
                "CREATE SCHEMA old; CREATE TABLE old.plays AS SELECT 1 AS item_id, 'x' AS kind UNION SELECT 2, 'y'"
            )
            connection.execute("CREATE TABLE plays AS SELECT * FROM 'plays.csv'")
        monkeypatch.setenv(name.upper(), f"{name}.db")
    answer = recsys("--json", "init", "a.db", "--yes")
    assert answer.json["columns"]["user"] == "user_id"
    assert answer.json["joined"] == {"plays_2": "items by item_id"}
    first, second = "SELECT * FROM 'plays.csv'", "SELECT DISTINCT item_id, 'i' || item_id AS title FROM 'plays.csv'"
    config = proposed(recsys, first, second)
    assert config.dataset.options == {"interactions": {"query": first}, "tables": {"plays_2": {"query": second}}}
    answer = recsys("init", "a.db", "b.db", first, "--yes")
    assert answer.code == 2
    assert "a query of several databases" in answer.err


def test_a_query_longer_than_a_path(recsys, plays):
    Path("p.csv").write_text(plays)
    query = f"SELECT user_id, item_id, timestamp {' ' * 300} FROM 'p.csv'"
    assert proposed(recsys, query).dataset.options == {"interactions": {"query": query}}


SIGNED = "sv=2024-01-01&sig=s3cr%2Ft"


def test_a_signed_address_stays_in_its_variable(recsys, plays, server, monkeypatch):
    Path("plays.csv").write_text(plays)
    url = f"{server}/plays.csv?{SIGNED}"
    answer = recsys("init", url, "--yes")
    assert answer.code == 2
    assert "http://… is a signed address, and configs name the environment variable" in answer.err
    monkeypatch.setenv("PLAYS", url)
    answer = recsys("init", url, "--yes")
    assert answer.code == 0, answer.err
    assert load(Path("PLAYS.yaml")).dataset.options["interactions"] == "$PLAYS"
    made = recsys("run", "PLAYS.yaml", "model={name: popularity}", "-v")
    assert made.code == 0, made.err
    monkeypatch.setenv("PLAYS", f"{server}/missing.csv?{SIGNED}")
    missing = recsys("etl", "PLAYS.yaml")
    assert missing.code == 4
    assert f"{server}/missing.csv?…" in missing.err
    refused = recsys("etl", "PLAYS.yaml", f"dataset.interactions={url}")
    assert refused.code == 2
    assert "export PLAYS=ADDRESS, and set files: $PLAYS" in refused.err
    texts = [answer.out, answer.err, made.out, made.err, missing.err, refused.err]
    texts += [path.read_bytes().decode("latin-1") for path in Path().rglob("*") if path.is_file()]
    assert not [text for text in texts if "s3cr" in text]
    monkeypatch.delenv("PLAYS")
    assert "the environment has no PLAYS" in recsys("etl", "PLAYS.yaml").err


def test_a_file_name_that_is_not_utf_8_is_an_error(recsys, plays):
    Path(os.fsdecode(b"caf\xe9.csv")).write_text(plays)
    for name in ("*.csv", "."):
        answer = recsys("init", name, "--yes")
        assert answer.code == 2
        assert r"the file name b'caf\xe9.csv' is not UTF-8" in answer.err


def test_a_long_address_names_a_short_config(recsys, plays, server):
    Path("plays.csv").write_text(plays)
    answer = recsys("--json", "init", f"{server}/{'a' * 3_000}.csv", "--yes")
    assert answer.code == 0, answer.err
    assert answer.json["config"] == f"{'a' * 100}.yaml"
    assert recsys("etl", answer.json["config"]).code == 0
