"""Before every route: address and token checks, the time limit, and metrics; and no answer without JSON."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recsys_cli.serving.http.problems import RequestError, problem_of
from recsys_cli.serving.http.service import Service
from recsys_cli.serving.http.work import ARRIVED

_LOG = logging.getLogger("recsys.serve")
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_OPEN = ("/v2/health/", "/docs", "/openapi.json")
_API = ("/recommend", "/score", "/similar", "/feedback", "/items", "/users", "/bundles", "/metrics", "/v2")


class Guard:
    """ASGI middleware around the app.

    Args:
        app: The app.
        service: The parts of the worker.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service, self._settings = app, service, service.settings
        self._load, self._metrics = service.load, service.metrics
        self._children: dict[tuple[str, int], tuple[Any, Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        ARRIVED.set(started := time.perf_counter())
        self._load.under_way += 1
        try:
            self._check(scope)
            async with asyncio.timeout(self._settings.limits.seconds):
                await self._app(scope, receive, sending)
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                _LOG.exception("unexpected error")
            if not status:
                await problem.response()(scope, receive, sending)
        finally:
            self._load.under_way -= 1
            self._measure(scope, status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        """Check the token, and that no page of another site asks.

        Raises:
            RequestError: The request is refused.
        """
        headers = {name: value for name, value in scope["headers"] if name in {b"host", b"origin", b"authorization"}}
        host = headers.get(b"host", b"").decode("latin-1")
        if origin := headers.get(b"origin"):
            _check_origin(origin.decode("latin-1"), host)
        token = self._settings.token
        if token is None:
            if self._settings.is_local and host and _name(host) not in _LOCAL:
                raise RequestError(403, f"the host {_name(host)} is not this machine", "use http://127.0.0.1:PORT")
            return
        path = scope["path"]
        if path.startswith(_OPEN) or not path.startswith(_API):
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), token.encode()):
            raise RequestError(
                401, "the token is missing or wrong", "Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
            )

    def _measure(self, scope: Scope, status: int, seconds: float) -> None:
        path = getattr(scope.get("route"), "path", "other")
        key = (path, status)
        if key not in self._children:
            self._children[key] = (
                self._metrics.requests.labels(path, str(status)), self._metrics.seconds.labels(path),
            )  # fmt: skip
        requests, times = self._children[key]
        requests.inc()
        times.observe(seconds)
        self._metrics.under_way.set(self._load.under_way)


def _check_origin(origin: str, host: str) -> None:
    try:
        same = urlsplit(origin).netloc == host
    except ValueError:
        same = False
    if not same:
        raise RequestError(
            403, "a page of another site may not ask", "send the request without Origin, or through a proxy"
        )


def _name(host: str) -> str:
    """Return the host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
