"""Slow, malformed and vanished clients, over sockets."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import Running, running

_HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
_BODY = b'{"user": 1, "k": 50, "explain": true}'
_CHUNKED = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
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


def test_connections_with_unfinished_headers_leave_others_served(hasty: Running) -> None:
    """A proxy ends them: docs/server.md has its settings."""
    with ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(_connected(hasty))
            connection.sendall(b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nX-Drip: ")
        assert hasty.post("/recommend", {"user": 1})["items"]


def test_a_body_that_does_not_end_is_refused_in_time(hasty: Running) -> None:
    with _connected(hasty) as slow:
        slow.sendall(_HEAD % (b"/recommend", 100_000) + b"a")
        assert slow.recv(65_536).startswith(b"HTTP/1.1 504 ")


@pytest.mark.parametrize("name", [b"X-Large: ", b""], ids=["one header", "many headers"])
def test_headers_above_their_limit_end_the_connection(name: bytes, hasty: Running) -> None:
    line = name + b"a" * (1 << 20) if name else b"a: b\r\n" * (1 << 18)
    with _connected(hasty) as connection:
        sent = 0
        try:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n")
            for _ in range(100):
                sent += connection.send(line)
        except OSError:
            pass
        assert sent < 16 << 20
        assert not _received(connection).startswith(b"HTTP/1.1 200")
    assert hasty.get("/v2/health/live")


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"x"])
def test_the_body_of_a_request_with_upgrade_is_no_request(protocol: bytes, hasty: Running) -> None:
    """A later packet was taken for the next request: a proxy has checked only the first one."""
    inner = b"GET /bundles HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: %d\r\n\r\n"
    with _connected(hasty) as connection:
        connection.sendall(head % (protocol, len(inner)))
        time.sleep(0.2)
        connection.sendall(inner)
        connection.shutdown(socket.SHUT_WR)
        received = _received(connection)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b"Invalid JSON" in received
    assert received.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("method", [b"POST", b"OPTIONS"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_body_of_two_lengths_is_refused(method: bytes, order: int, hasty: Running) -> None:
    """A proxy that goes by the other length sees another next request."""
    names = b"\r\n".join([b"Content-Length: 4", b"Transfer-Encoding: chunked"][::order])
    with _connected(hasty) as connection:
        connection.sendall(method + b" /recommend HTTP/1.1\r\nHost: localhost\r\n" + names + b"\r\n\r\n")
        connection.sendall(b"0\r\n\r\n" + _REQUEST)
        received = _received(connection)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b'{"error":"the request has Content-Length and Transfer-Encoding"' in received
    assert received.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("head", [b"GET /v2/health/live HTTP/1.1\r\nX: %s", b"GET /v2/health/live?%s HTTP/1.1\r\nX: x"])
def test_headers_above_their_limit_in_one_packet_are_refused(head: bytes, hasty: Running) -> None:
    for size in (60_000, 70_000):
        with _connected(hasty) as connection:
            connection.sendall(head % (b"a" * size) + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert _received(connection).startswith(b"HTTP/1.1 431 ") == (size > 1 << 16)


def test_trailers_are_no_headers(hasty: Running) -> None:
    with _connected(hasty) as connection:
        connection.sendall(
            _CHUNKED
            + b"%x\r\n%s\r\n0\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n" % (len(_BODY), _BODY)
        )
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


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


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        _CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
        _CHUNKED + b"5\r\n{}\r\n0\r\n\r\n",
        _CHUNKED + b"2\r\n{}\r\nzz\r\n",
    ],
    ids=["request line", "header", "long request line", "chunk size", "chunk end", "second chunk"],
)
def test_malformed_http_is_refused(content: bytes, hasty: Running) -> None:
    with _connected(hasty) as connection:
        connection.sendall(content)
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
