"""Files at URLs, on a real HTTP server, in memory and in archives: search, reading and errors."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import io
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.data import RawTable, Source, open_source, raw_files
from recsys_cli.data.raw_files import RemoteFile, is_url
from recsys_cli.data.raw_files import opened as opened_stream
from recsys_cli.errors import ConfigError, DataError, MissingExtraError
from recsys_cli.etl.reading.reader import Reader
from tests.unit.data.wayward import Server, drops_after, ignores_range, plain, status

ROWS = pa.table({"user": list(range(2000)), "item": [f"i{row % 9}" for row in range(2000)]})
TEXT = b"user,item\n" + b"".join(b"%d,i%d\n" % (row, row % 9) for row in range(2000))


def as_parquet(rows: pa.Table = ROWS) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, row_group_size=300)
    return buffer.getvalue()


STORED = {"r.csv": TEXT, "r.csv.gz": gzip.compress(TEXT), "r.parquet": as_parquet()}


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """The file system in memory, empty before and after."""
    system = fsspec.filesystem("memory")
    system.rm("/", recursive=True)
    yield system
    system.rm("/", recursive=True)


def opened(interactions: object) -> Source:
    return open_source("files", {"interactions": interactions})


def described(interactions: object) -> RawTable:
    return opened(interactions).tables(Path())[0]


def names(table: RawTable) -> list[str]:
    return [str(file) for file in table.files]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """A server that answers with some bytes, one every tenth of a second, and then is silent; returns its address."""
    monkeypatch.setattr(raw_files, "_SILENT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers: list[bytes] = []
        kept: list[socket.socket] = []

        def send(connection: socket.socket) -> None:
            kept.append(connection)
            with contextlib.suppress(OSError):  # the client has gone
                connection.send(answers[0][: len(HEADERS)])
                for number in range(len(HEADERS), len(answers[0])):
                    time.sleep(0.1)
                    connection.send(answers[0][number : number + 1])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    Thread(target=send, args=listener.accept()[:1], daemon=True).start()

        Thread(target=serve, daemon=True).start()

        def address(answer: bytes, *, path: str) -> str:
            answers.append(answer)
            return f"http://127.0.0.1:{listener.getsockname()[1]}/{path}?sig=abcd"

        yield address
        listener.shutdown(socket.SHUT_RDWR)
        for one in kept:
            one.close()


HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: 19\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("answer", [b"", HEADERS[:20], HEADERS + b"user,i"])
def test_a_silent_server_is_an_error(silent: Callable[..., str], answer: bytes) -> None:
    file = RemoteFile(silent(answer, path="r.csv"), {"size": 19})
    with (
        pytest.raises(DataError, match=r"r\.csv\?…: no answer within 0\.5 s") as caught,
        opened_stream(file) as (stream, _),
    ):
        stream.readinto(memoryview(bytearray(19)))
    assert "abcd" not in str(caught.value)


def test_a_silent_server_is_no_missing_file(silent: Callable[..., str]) -> None:
    url = silent(b"", path="r.csv")
    with pytest.raises(DataError, match=r"r\.csv\?…: no answer within 0\.5 s"):
        raw_files.find(url)
    with pytest.raises(DataError, match=r"r\.csv\?…: no answer within 0\.5 s"):
        _ = RemoteFile(url).info


def test_a_slow_server_is_read_to_its_end(silent: Callable[..., str]) -> None:
    file = RemoteFile(silent(HEADERS + TEXT[:19], path="slow.csv"), {"size": None})
    with file.open() as stream:  # 1.9 s, three times the limit of silence
        assert stream.read(19) == TEXT[:19]


@pytest.mark.parametrize("name", STORED)
def test_files_of_a_server_are_read(server: Server, name: str) -> None:
    server.files[f"in/{name}?version=2"] = STORED[name]
    reader = Reader(described(f"{server.url}/in/{name}?version=2"), chunk_bytes=4000)
    assert reader.read().equals(ROWS)
    assert reader.estimated_rows() == pytest.approx(2000, rel=0.01)


def test_server_without_ranges_sends_text_and_no_parquet(server: Server) -> None:
    large = b"user,item\n" + b"".join(
        b"%d,%064d\n" % (row, row) for row in range(80_000)
    )  # more than one answer's 5 MiB
    server.files |= {**STORED, "large.csv": large}
    server.script = [ignores_range] * 60
    assert Reader(described(f"{server.url}/r.csv.gz")).read().equals(ROWS)
    assert Reader(described(f"{server.url}/large.csv")).read()["user"].to_pylist() == list(range(80_000))
    with pytest.raises(DataError, match=r"r\.parquet: The HTTP server doesn't appear to support range requests"):
        Reader(described(f"{server.url}/r.parquet")).read()


def test_dropped_connection_is_an_error(server: Server) -> None:
    server.files |= STORED
    table = described(f"{server.url}/r.csv")
    server.script = [plain, drops_after(5000)]
    with pytest.raises(DataError, match=r"/r\.csv: "):
        Reader(table).read()


def test_missing_remote_files_are_named(server: Server) -> None:
    with pytest.raises(DataError, match=r"table 'interactions': there is no file at http.*/gone\.csv"):
        described(f"{server.url}/gone.csv")
    server.files |= STORED
    table = described(f"{server.url}/r.csv")
    server.files.clear()
    with pytest.raises(DataError, match=r"/r\.csv does not exist"):
        Reader(table).read()
    server.script = [status(403)] * 8
    with pytest.raises(DataError, match=r"/r\.csv: 403"):
        described(f"{server.url}/r.csv")


def test_unreachable_server_is_named() -> None:
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:1/r\.csv: Cannot connect"):
        described("http://127.0.0.1:1/r.csv")


def test_identity_changes_with_the_servers_file(server: Server) -> None:
    server.files |= STORED
    source = opened(f"{server.url}/r.csv")
    before = source.identity()
    assert before == source.identity()
    server.files["r.csv"] = TEXT.replace(b"i8", b"i7")
    assert before != source.identity()


def test_globs_and_folders_are_found_in_order(memory: fsspec.AbstractFileSystem) -> None:
    for name in ("b/2.csv", "b/10.csv", "b/deep/3.csv", "b/_SUCCESS", "b/.2.csv.crc", "b/notes.txt"):
        memory.pipe(f"/{name}", TEXT)
    assert names(described("memory://b/*.csv")) == ["memory:///b/10.csv", "memory:///b/2.csv"]
    assert names(described("memory://b/*2*")) == ["memory:///b/2.csv"]
    assert names(described(["memory://b/2.csv", "memory://b/deep/*"])) == ["memory://b/2.csv", "memory:///b/deep/3.csv"]
    memory.rm("/b/notes.txt")
    assert names(described("memory://b")) == ["memory:///b/10.csv", "memory:///b/2.csv", "memory:///b/deep/3.csv"]
    with pytest.raises(DataError, match=r"there is no file at memory://b/\*\.parquet"):
        described("memory://b/*.parquet")
    with pytest.raises(ConfigError, match=r"memory:///b/2\.csv is matched twice"):
        described(["memory://b/*.csv", "memory:///b/2.csv"])


@pytest.mark.parametrize("name", STORED)
def test_files_in_memory_are_read_and_stamped(memory: fsspec.AbstractFileSystem, name: str) -> None:
    memory.pipe(f"/b/1-{name}", STORED[name])
    memory.pipe(f"/b/2-{name}", STORED[name])
    source = opened(f"memory://b/*{name}")
    before = source.identity()
    assert Reader(source.tables(Path())[0]).read().equals(pa.concat_tables([ROWS, ROWS]).combine_chunks())
    memory.pipe(f"/b/2-{name}", STORED[name])
    assert before != source.identity()


def test_members_of_an_archive_are_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in STORED.items():
            archive.writestr(f"in/{name}", content)
    table = described(f"zip://in/*.csv::file://{tmp_path}/a.zip")
    assert names(table) == [f"zip://in/r.csv::file://{tmp_path}/a.zip"]
    assert Reader(table, chunk_bytes=3000).read().equals(ROWS)
    assert Reader(described(f"zip://in/r.parquet::{tmp_path}/a.zip")).read().equals(ROWS)


def test_files_of_a_local_cache_are_read(memory: fsspec.AbstractFileSystem) -> None:
    for name, content in STORED.items():
        memory.pipe(f"/b/{name}", content)
    assert Reader(described("simplecache::memory://b/r.parquet")).read().equals(ROWS)
    table = described("simplecache::memory://b/*.gz")
    assert names(table) == ["simplecache::memory:///b/r.csv.gz"]
    assert Reader(table).read().equals(ROWS)


def test_local_protocol_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_bytes(TEXT)
    assert described(f"file://{tmp_path}/r.csv").files == (tmp_path / "r.csv",)
    assert opened(f"file://{tmp_path}/*.csv").identity() == opened(str(tmp_path / "r.csv")).identity()


@pytest.mark.parametrize(
    ("text", "url"),
    [("s3://b/x", True), ("zip://a::s3://b/c.zip", True), ("file:///x", False), ("a/b:c.csv", False), ("C:\\x", False)],
)
def test_urls_differ_from_paths(text: str, url: bool) -> None:
    assert is_url(text) is url


def test_unknown_protocol_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"htps://x/r\.csv: unknown protocol 'htps' \(did you mean https\?\)"):
        described("htps://x/r.csv")


def test_missing_package_is_named_with_its_command() -> None:
    if importlib.util.find_spec("paramiko"):
        pytest.skip("paramiko is installed here")
    with pytest.raises(MissingExtraError, match=r"sftp://host/r\.csv: .*paramiko") as found:
        described("sftp://host/r.csv")
    assert found.value.hint == "pip install paramiko"


def test_remote_file_has_the_name_of_its_path() -> None:
    urls = (
        "https://h/a/r.csv.gz?sig=a/b",
        "memory://r.csv",
        "zip://in/r.csv::https://h/a.zip",
        "simplecache::s3://b/r.csv",
    )
    assert [RemoteFile(url).name for url in urls] == ["r.csv.gz", "r.csv", "r.csv", "r.csv"]
