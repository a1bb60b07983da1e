from __future__ import annotations

import hashlib
import os
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from recsys_cli.data.fetch import Digest, RetryPolicy, download
from recsys_cli.errors import DataError
from recsys_cli.events import ignore
from tests.unit.data.wayward import Server, Watcher, digest_of, drops_after, ignores_range, plain, status

BODY = os.urandom(300_000)


class Sleeps(list[float]):
    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture
def retry(sleeps: Sleeps) -> RetryPolicy:
    return RetryPolicy(attempts=3, timeout=10, sleep=sleeps)


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "ml.zip"


@pytest.fixture
def url(server: Server) -> str:
    server.files["ml.zip"] = BODY
    return f"{server.url}/ml.zip"


def only_the_file(to: Path) -> bool:
    return {path.name for path in to.parent.iterdir()} - {"ml.zip.lock"} == {"ml.zip"}


def nothing_left(to: Path) -> bool:
    return {path.name for path in to.parent.iterdir()} <= {"ml.zip.lock"}


def test_download_gives_the_file_and_its_progress_and_replaces_a_wrong_file(
    url: str, to: Path, watcher: Watcher
) -> None:
    found = download(url, to, digest=digest_of(BODY), emit=watcher)
    assert to.read_bytes() == BODY
    assert found == hashlib.md5(BODY).hexdigest()
    assert only_the_file(to)
    to.write_bytes(b"half of it")
    sha = hashlib.sha256(BODY).hexdigest()
    assert download(url, to, digest=Digest(sha, "sha256"), emit=ignore) == sha
    assert to.read_bytes() == BODY
    steps = watcher.progress("download ml.zip")
    assert [step.done for step in steps] == sorted({step.done for step in steps})
    assert (steps[-1].done, steps[-1].total, steps[-1].unit) == (len(BODY), len(BODY), "bytes")


def test_repeated_download_sends_no_request(url: str, to: Path, server: Server, watcher: Watcher) -> None:
    download(url, to, digest=digest_of(BODY), emit=watcher)
    download(url, to, digest=digest_of(BODY), emit=watcher)
    assert len(server.requests) == 1
    assert "already downloaded" in watcher.texts()


def test_download_without_digest_is_repeated(url: str, to: Path, server: Server) -> None:
    download(url, to, digest=None, emit=ignore)
    server.files["ml.zip"] = b"a new edition"
    assert download(url, to, digest=None, emit=ignore) == hashlib.md5(b"a new edition").hexdigest()


@pytest.mark.parametrize("known", [True, False], ids=["digest", "no digest"])
def test_dropped_connection_is_resumed(
    url: str, to: Path, server: Server, retry: RetryPolicy, watcher: Watcher, known: bool
) -> None:
    server.script = [drops_after(100_000)]
    download(url, to, digest=digest_of(BODY) if known else None, emit=watcher, retry=retry)
    assert to.read_bytes() == BODY
    assert only_the_file(to)
    assert server.ranges() == [None, "bytes=100000-"]
    assert server.requests[1]["If-Range"] == f'"{hashlib.md5(BODY).hexdigest()}"'
    assert "retrying" in watcher.texts("warning")


def test_a_later_call_resumes_a_partial_download(url: str, to: Path, server: Server, retry: RetryPolicy) -> None:
    server.script = [drops_after(100_000), status(500), status(500), status(500)]
    with pytest.raises(DataError, match="500"):
        download(url, to, digest=digest_of(BODY), emit=ignore, retry=retry)
    assert not to.exists()
    assert to.with_name("ml.zip.part").read_bytes() == BODY[:100_000]
    download(url, to, digest=digest_of(BODY), emit=ignore, retry=retry)
    assert to.read_bytes() == BODY
    assert server.ranges()[-1] == "bytes=100000-"


def test_another_server_resumes_only_with_a_digest(url: str, to: Path, server: Server, retry: RetryPolicy) -> None:
    server.files["mirror/ml.zip"] = BODY
    for digest, expected in ((digest_of(BODY), "bytes=100000-"), (None, None)):
        server.script = [drops_after(100_000), status(404)]
        with pytest.raises(DataError, match="404"):
            download(url, to, digest=digest, emit=ignore, retry=retry)
        download(f"{server.url}/mirror/ml.zip", to, digest=digest, emit=ignore, retry=retry)
        assert to.read_bytes() == BODY
        assert server.ranges()[-1] == expected
        assert "If-Range" not in server.requests[-1]
        to.unlink()


@pytest.mark.parametrize(
    ("script", "known", "ranges"),
    [
        ([drops_after(100_000), ignores_range], True, [None, "bytes=100000-"]),
        ([drops_after(100_000), drops_after(1_000, start=5)], True, None),  # another range
        ([drops_after(100_000, etag='"older"')], False, None),  # a changed file
        ([drops_after(100_000, etag='W/"weak"')], False, [None, None]),  # no validator
        ([drops_after(10_000, start=10_000 * turn) for turn in range(8)], True, None),  # more drops than attempts
    ],
    ids=["no ranges", "another range", "changed", "weak", "many drops"],
)
def test_dropped_connection_is_resumed_or_restarted(
    url: str, to: Path, server: Server, retry: RetryPolicy, watcher: Watcher, script, known: bool, ranges
) -> None:
    server.script = list(script)
    download(url, to, digest=digest_of(BODY) if known else None, emit=watcher, retry=retry)
    assert to.read_bytes() == BODY
    assert ranges is None or server.ranges() == ranges
    assert ("cannot resume" in watcher.texts()) >= (ignores_range in script)


@pytest.mark.parametrize("surplus", [0, 17], ids=["complete", "too long"])
def test_part_file_at_or_past_the_end(url: str, to: Path, server: Server, retry: RetryPolicy, surplus: int) -> None:
    server.script = [drops_after(100_000), status(404)]
    with pytest.raises(DataError, match="404"):
        download(url, to, digest=digest_of(BODY), emit=ignore, retry=retry)
    to.with_name("ml.zip.part").write_bytes(BODY + b"x" * surplus)
    download(url, to, digest=digest_of(BODY), emit=ignore, retry=retry)
    assert to.read_bytes() == BODY
    assert len(server.requests) == (3 if surplus == 0 else 4)


@pytest.mark.parametrize("other", [os.urandom(len(BODY)), BODY[:-1]], ids=["other bytes", "other size"])
def test_other_bytes_are_refused_and_deleted(url: str, to: Path, server: Server, other: bytes) -> None:
    server.files["ml.zip"] = other
    with pytest.raises(DataError, match=r"is not the expected file: expected .* found") as caught:
        download(url, to, digest=digest_of(BODY), emit=ignore)
    assert "--mirror" in str(caught.value.hint)
    assert nothing_left(to)


def test_html_page_is_recognized_and_keeps_the_part_file(
    url: str, to: Path, server: Server, retry: RetryPolicy
) -> None:
    page = status(200, headers={"Content-Type": "text/html"}, body=b"\n <!DOCTYPE html><title>Log in</title>")
    server.script = [drops_after(100_000), page]
    with pytest.raises(DataError, match=r"ml\.zip answers with an HTML page") as caught:
        download(url, to, digest=digest_of(BODY), emit=ignore, retry=retry)
    assert "login page" in str(caught.value.hint)
    assert to.with_name("ml.zip.part").stat().st_size == 100_000
    assert not to.exists()


@pytest.mark.parametrize(
    ("content", "digest", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", digest_of(BODY), "Git LFS pointer"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", None, "Git LFS pointer"),
        (b"", None, "is empty"),
    ],
)
def test_other_answers_are_recognized(
    url: str, to: Path, server: Server, content: bytes, digest: Digest | None, message: str
) -> None:
    server.files["ml.zip"] = content
    with pytest.raises(DataError, match=message):
        download(url, to, digest=digest, emit=ignore)
    assert nothing_left(to)


def test_404_names_the_url_and_the_alternatives(server: Server, to: Path) -> None:
    with pytest.raises(DataError, match=rf"{server.url}/gone\.zip: the server answers 404") as caught:
        download(f"{server.url}/gone.zip", to, digest=None, emit=ignore)
    assert "--mirror URL" in str(caught.value.hint)
    assert "--from-file PATH" in str(caught.value.hint)
    assert len(server.requests) == 1
    assert nothing_left(to)


def test_503_waits_as_long_as_the_server_asks(
    url: str, to: Path, server: Server, retry: RetryPolicy, sleeps: Sleeps
) -> None:
    server.script = [status(503, headers={"Retry-After": "7"}), status(429, headers={"Retry-After": "900"})]
    download(url, to, digest=digest_of(BODY), emit=ignore, retry=retry)
    assert to.read_bytes() == BODY
    assert sleeps == [7.0, retry.max_wait]


def test_failures_without_progress_end(url: str, to: Path, server: Server, retry: RetryPolicy, sleeps: Sleeps) -> None:
    server.script = [status(503)] * 5
    with pytest.raises(DataError, match="503"):
        download(url, to, digest=digest_of(BODY), emit=ignore, retry=retry)
    assert sleeps == [1.0, 2.0]
    assert len(server.requests) == 3


def test_refused_connection_is_an_error(to: Path, retry: RetryPolicy) -> None:
    with pytest.raises(DataError, match=r"cannot download http://127\.0\.0\.1:9/ml\.zip: .*refused") as caught:
        download("http://127.0.0.1:9/ml.zip", to, digest=None, emit=ignore, retry=retry)
    assert "--mirror" in str(caught.value.hint)


def test_full_disk_is_one_message(url: str, to: Path) -> None:
    to.parent.mkdir()
    to.with_name("ml.zip.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"cannot write .*No space left") as caught:
        download(url, to, digest=None, emit=ignore)
    assert caught.value.hint == "check the free disk space"


def test_concurrent_downloads_send_one_request(url: str, to: Path, server: Server) -> None:
    watchers = [Watcher(), Watcher()]
    second_waits = threading.Event()

    def slowly(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        second_waits.wait(10)
        plain(handler, body)

    def second_emit(event: object) -> None:
        watchers[1].append(event)  # type: ignore[arg-type]
        second_waits.set()

    server.script = [slowly]
    emits = [watchers[0], second_emit]
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda emit=emit: found.append(download(url, to, digest=None, emit=emit)))
        for emit in emits
    ]
    threads[0].start()
    while not server.requests:
        time.sleep(0.01)
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert found == [hashlib.md5(BODY).hexdigest()] * 2
    assert len(server.requests) == 1
    assert "waiting for it" in watchers[1].texts()
    assert only_the_file(to)


def test_invalid_certificate_is_one_message(tmp_path: Path, to: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("makes its certificate with the openssl program, which is not here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Quiet(HTTPServer):
        def handle_error(self, *_: object) -> None:
            pass

    https = Quiet(("127.0.0.1", 0), BaseHTTPRequestHandler)
    https.socket = context.wrap_socket(https.socket, server_side=True)
    thread = threading.Thread(target=https.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with pytest.raises(DataError, match=r"certificate is not valid \(self.signed certificate") as caught:
            download(f"https://127.0.0.1:{https.server_address[1]}/ml.zip", to, digest=None, emit=ignore)
    finally:
        https.shutdown()
        thread.join()
        https.server_close()
    assert "--mirror URL" in str(caught.value.hint)
    assert "digest is checked" in str(caught.value.hint)
