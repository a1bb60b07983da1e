"""Fixtures of the data tests: a real HTTP server with scripted answers, and a recording emit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.unit.data.wayward import Server, Watcher, plain, status


@pytest.fixture
def server() -> Iterator[Server]:
    """A local server; requests without a script get correct answers."""
    state = Server()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with lock:
                state.requests.append(dict(self.headers))
                answer = state.script.pop(0) if state.script else None
            body = state.files.get(self.path.lstrip("/"))
            if answer is None:
                answer = plain if body is not None else status(404)
            answer(self, body or b"")

        do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

        def log_message(self, *_: object) -> None:
            pass

    class Http(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that hang up: some tests are about that."""

    http = Http(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture(autouse=True)
def no_proxy_and_no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolate the tests from settings of the machine."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "RECSYS_MIRROR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def watcher() -> Watcher:
    """A recording emit."""
    return Watcher()
