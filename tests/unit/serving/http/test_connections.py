"""Slow, malformed and vanished clients, over sockets."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import Running, running, until

_HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
_BODY = b'{"user": 1, "k": 50, "explain": true}'
_REQUEST = _HEAD % (b"/recommend", len(_BODY)) + _BODY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connections")


@pytest.fixture(scope="module")
def hasty(folder: Path, bundle_of: Callable[[str], Path]) -> Iterator[Running]:
    """A server with a time limit of one second."""
    with running(folder, str(bundle_of("ease")), "--timeout", "1") as server:
        yield server


def _connected(server: Running) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def _received(connection: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def _is_closed(connection: socket.socket) -> bool:
    """Drip one byte; whether the server has closed the connection."""
    try:
        connection.send(b"a")
        return bool(select.select([connection], [], [], 0)[0])
    except OSError:
        return True


def test_connections_with_unfinished_headers_are_closed_and_others_are_served(hasty: Running) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(_connected(hasty)) for _ in range(200)]
        for connection in slow:
            connection.sendall(b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nX-Drip: ")
        assert hasty.post("/recommend", {"user": 1})["items"]
        until(lambda: sum(map(_is_closed, slow)) == len(slow), seconds=15)
    with _connected(hasty) as silent:
        assert b"408 Request Timeout" in _received(silent)


@pytest.mark.parametrize(
    "start",
    [
        b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n",
        _HEAD % (b"/typo", 100_000),
        _HEAD % (b"/recommend", 100_000),
    ],
    ids=["between requests", "body of a refused request", "body"],
)
def test_dripping_connections_are_closed(start: bytes, hasty: Running) -> None:
    with _connected(hasty) as slow:
        slow.sendall(start)
        drip = b"\r\n" if start.endswith(b"\r\n\r\n\r\n") else b"a"
        ends = time.perf_counter() + 10
        closed = False
        while not closed and time.perf_counter() < ends:
            try:
                slow.send(drip)
                closed = bool(select.select([slow], [], [], 0.05)[0]) and not slow.recv(65_536)
            except OSError:
                closed = True
        assert closed


def test_an_idle_connection_stays_and_pipelined_requests_are_answered(hasty: Running) -> None:
    with _connected(hasty) as connection:
        connection.sendall(_REQUEST * 3)
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 3:
            received += connection.recv(65_536)
        time.sleep(1.5)
        while select.select([connection], [], [], 0)[0]:
            assert connection.recv(65_536)
        connection.sendall(_REQUEST)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK")


_CHUNKED = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        _CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
        _CHUNKED + b"5\r\n{}\r\n0\r\n\r\n",
        _CHUNKED + b"2\r\n{}\r\nzz\r\n",
    ],
    ids=["request line", "header", "long request line", "chunk size", "chunk end", "second chunk"],
)
def test_malformed_http_is_refused_as_json(content: bytes, hasty: Running) -> None:
    with _connected(hasty) as connection:
        connection.sendall(content)
        head, _, body = _received(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/json" in head
    assert set(json.loads(body)) == {"error", "hint"}


def test_a_malformed_rest_of_a_body_is_refused(hasty: Running) -> None:
    with _connected(hasty) as connection:
        connection.sendall(_CHUNKED + b"2\r\n{}\r\n")
        time.sleep(0.3)  # the app waits for the rest
        connection.sendall(b"zz\r\n")
        received = _received(connection)
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert received.count(b"HTTP/1.1 ") == 1


def test_answers_of_a_pipeline_are_not_mixed_with_that_of_a_malformed_request(hasty: Running) -> None:
    """Whether the first request is answered before the close is a matter of time."""
    with _connected(hasty) as connection:
        connection.sendall(_REQUEST + _CHUNKED + b"zz\r\n")
        received = _received(connection)
    assert not received or received.startswith(b"HTTP/1.1 200 OK")


def test_vanished_clients_leave_no_traceback(hasty: Running, folder: Path) -> None:
    for number in range(60):
        with _connected(hasty) as connection:
            connection.sendall(_REQUEST * 20 + b"GET / HTTP/1.1\r\n" * (number % 2) + b"x" * (number % 3))
            if number % 5 == 0:
                connection.recv(100)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    upgrade = b"GET /bundles HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with _connected(hasty) as connection:
        connection.sendall(upgrade)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK")
    time.sleep(0.5)
    assert hasty.get("/v2/health/ready")
    log = (folder / "stderr.txt").read_text()
    assert "Traceback" not in log, log
    assert "ERROR" not in log, log
