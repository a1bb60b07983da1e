"""The app: all routes of a worker, their errors as JSON, and before every route the checks of address, token and time."""

from __future__ import annotations

import asyncio
import hmac
import logging
import signal
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recsys_cli import __version__
from recsys_cli.errors import RecsysError
from recsys_cli.serving.http import bodies
from recsys_cli.serving.http.batching import ARRIVED
from recsys_cli.serving.http.feedback_routes import feedback_routes, item_routes
from recsys_cli.serving.http.inference import inference_routes
from recsys_cli.serving.http.problems import RequestError, problem_of
from recsys_cli.serving.http.reading import PROBLEMS, describe
from recsys_cli.serving.http.routes import catalog_routes, recommend_routes
from recsys_cli.serving.http.service import Service

_LOG = logging.getLogger("recsys.serve")
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_SHOWN = 100
"""Maximum characters of a host in a message."""
_CLOSE = {"Connection": "close"}
"""Headers of a refusal: the rest of its request is not read."""
MAX_HEAD = 1 << 16
"""Maximum bytes of the first line and the headers of a request."""
_PAGE = Path(__file__).parent / "static"
PUBLIC = frozenset({
    "/", "/docs", "/openapi.json", "/v2/health/live", "/v2/health/ready", *(f"/{one.name}" for one in _PAGE.iterdir()),
})  # fmt: skip
"""Paths without a token: the page, descriptions, and health. All others need it, those of later routes too."""


class Guard:
    """ASGI middleware around the app."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service, self._settings = app, service, service.settings
        self._metrics = service.metrics
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
        self._service.under_way += 1
        try:
            self._check(scope)
            async with asyncio.timeout(self._settings.limits.seconds):
                if scope["path"] not in PUBLIC:
                    await self._service.refresh()
                await self._app(scope, receive, sending)
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                _LOG.exception("unexpected error")
            if not status:
                refusal: ASGIApp = problem.response()
                if scope["method"] != "OPTIONS":  # pages of allowed sites read refusals, too
                    refusal = CORSMiddleware(refusal, self._settings.cors)
                await refusal(scope, receive, sending)
        finally:
            self._service.under_way -= 1
            self._measure(scope, status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        """Check the form of the head, the token, and that no page of another site asks.

        Raises:
            RequestError: The request is refused.
        """
        headers = dict(scope["headers"])
        if headers.keys() >= {b"content-length", b"transfer-encoding"}:
            hint = "send one of them: a proxy may read the other one"
            raise RequestError(400, "the request has Content-Length and Transfer-Encoding", hint, _CLOSE)
        # The parser checks the size of unfinished heads only: one packet may have more.
        size = len(scope["path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in scope["headers"])
        if size > MAX_HEAD:
            raise RequestError(431, f"the headers are above {MAX_HEAD:,} bytes", "send less of them", _CLOSE)
        host = headers.get(b"host", b"").decode("latin-1")
        if origin := headers.get(b"origin"):
            _check_origin(origin.decode("latin-1"), host, self._settings.cors)
        token = self._settings.token
        if token is None:
            if self._settings.is_local and host and _name(host) not in _LOCAL:
                message = f"the host {_name(host)[:_SHOWN]} is not this machine"
                raise RequestError(403, message, "use http://127.0.0.1:PORT", _CLOSE)
            return
        is_preflight = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers and origin
        if scope["path"] in PUBLIC or (
            is_preflight and self._settings.cors
        ):  # answered before the app, without a token
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), token.encode()):
            closing = {"WWW-Authenticate": "Bearer", **_CLOSE}
            raise RequestError(401, "the token is missing or wrong", "Authorization: Bearer TOKEN", closing)

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
        self._metrics.under_way.set(self._service.under_way)


def _check_origin(origin: str, host: str, allowed: Collection[str]) -> None:
    try:
        same = urlsplit(origin).netloc == host
    except ValueError:
        same = False
    if not same and origin not in allowed:
        hint = "allow it: recsys serve --cors ORIGIN; or send the request through a proxy"
        raise RequestError(403, "a page of another site may not ask", hint, _CLOSE)


def _name(host: str) -> str:
    """Return the host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def create_app(service: Service) -> ASGIApp:
    """Return the app of a worker."""
    app = FastAPI(title="recsys", version=__version__, lifespan=_lifespan(service), docs_url=None, redoc_url=None)
    for routes in (recommend_routes, feedback_routes, item_routes, catalog_routes, inference_routes):
        app.include_router(routes(service), responses=PROBLEMS)
    app.add_route("/docs", lambda _: RedirectResponse("/openapi.json"), include_in_schema=False)
    app.mount("/", _PageFiles(directory=_PAGE, html=True))
    for kind in (RequestError, RecsysError, Exception):
        app.add_exception_handler(kind, _problem)
    app.add_exception_handler(RequestValidationError, _invalid_parameter)
    app.add_exception_handler(HTTPException, _plain)
    read = (bodies.RecommendBody, bodies.BatchBody, bodies.ScoreBody, bodies.FeedbackBody, bodies.ItemBody)
    describe(app, *read, bodies.ItemsBody, has_token=service.settings.token is not None)
    if not (origins := service.settings.cors):
        return Guard(app, service)
    shared = _Cors(app, origins, ("GET", "POST", "PUT", "DELETE"), ("Authorization", "Content-Type"))
    return Guard(shared, service)


class _PageFiles(StaticFiles):
    """The files of the page at `/`; its scripts and styles come from this server only."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file with the headers of the page."""
        response = await super().get_response(path, scope)
        policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        response.headers.update({
            "Content-Security-Policy": policy,
            "Cache-Control": "no-cache",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        })  # fmt: skip
        return response


class _Cors(CORSMiddleware):
    """CORS whose refusals are JSON, too."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the answer to a preflight request."""
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        return RequestError(400, bytes(response.body).decode(), "recsys serve --help describes --cors").response()


def _lifespan(service: Service) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, lambda: service.background(service.fleet.reload()))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        await service.start()
        yield
        await service.close()

    return lifespan


async def _problem(_: Request, error: Exception) -> Response:
    return problem_of(error).response()


async def _invalid_parameter(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
    return RequestError(422, problems, "/docs describes the parameters").response()


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return RequestError(error.status_code, message, "/docs lists the routes", error.headers).response()
