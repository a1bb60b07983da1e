"""HTTP connections: time limits for slow clients, and malformed requests answered as JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from recsys_cli.serving.http.problems import RequestError

_HINT = "send the whole request, as HTTP/1.1"


class Connection(HttpToolsProtocol):
    """Uvicorn's connection. Its only time limit is that of idle connections, and any byte ends it.

    Here every request has `seconds` from its first byte to the end of its headers, the rest of a body `seconds` after
    the answer, and the client `seconds` to read. The app limits the wait for a body.

    Args:
        seconds: The limit.
        arguments: Those of uvicorn.
    """

    def __init__(self, *, seconds: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._seconds = seconds
        self._is_in_body = False
        self._running: RequestResponseCycle | None = None
        self._unfinished: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the limit of the first request."""
        super().connection_made(transport)
        self._limit_headers()

    def data_received(self, data: bytes) -> None:
        """Start the limit of the next request."""
        if not self._is_in_body:
            self._limit_headers()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Start the limit of a pipelined request."""
        self._limit_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End the limit."""
        super().on_headers_complete()  # raises for a path above 64 KiB: there is no request then
        self._is_in_body = True
        self._unfinished = self._without(self._unfinished)

    def on_message_complete(self) -> None:
        """Expect the next request."""
        self._is_in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Limit the rest of the body."""
        super().on_response_complete()
        if self._is_in_body:
            self._limit_headers()

    def pause_writing(self) -> None:
        """Limit the wait for a client that does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """End the limit."""
        super().resume_writing()
        self._unread = self._without(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        """End all limits; the running request of a pipeline learns of it, too, and the others do not start."""
        self._unfinished, self._unread = self._without(self._unfinished), self._without(self._unread)
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, with an answer that the client did not read."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request."""
        self._refuse(RequestError(400, msg, _HINT))

    def _unsupported_upgrade_warning(self) -> None:
        """Answer a request with `Upgrade` as any other."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _limit_headers(self) -> None:
        if self._unfinished is None:
            self._unfinished = self.loop.call_later(self._seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._refuse(RequestError(408, f"the request was not complete after {self._seconds:g} s", _HINT))

    def _refuse(self, problem: RequestError) -> None:
        """Close the connection; with an answer, unless that of this or an earlier request is under way."""
        running = self._running
        if running is not None and self._is_in_body and running is self.cycle and not running.response_started:
            running.disconnected = is_next = True  # the app's answer is left out
            running.message_event.set()
        else:
            is_next = not self._is_in_body and (running is None or running.response_complete)
        if is_next:
            response = problem.response()
            head = b"".join(name + b": " + value + b"\r\n" for name, value in response.raw_headers)
            content = (STATUS_LINE[problem.status], head, b"connection: close\r\n\r\n", bytes(response.body))
            self.transport.write(b"".join(content))
        self.transport.close()

    @staticmethod
    def _without(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
        """Cancel a timer, and return None in its place."""
        if timer is not None:
            timer.cancel()
        return None
