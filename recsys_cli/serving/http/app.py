"""The app: all routes of a worker, their errors as JSON, and the page."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp

from recsys_cli import __version__
from recsys_cli.errors import RecsysError
from recsys_cli.serving.http import bodies
from recsys_cli.serving.http.catalog_routes import catalog_routes
from recsys_cli.serving.http.feedback_routes import feedback_routes
from recsys_cli.serving.http.guard import Guard
from recsys_cli.serving.http.inference.routes import inference_routes
from recsys_cli.serving.http.item_routes import item_routes
from recsys_cli.serving.http.page import HEADERS, PageFiles, page_routes
from recsys_cli.serving.http.problems import RequestError, problem_of
from recsys_cli.serving.http.reading import PROBLEMS, describe
from recsys_cli.serving.http.recommend_routes import recommend_routes
from recsys_cli.serving.http.reference import reference
from recsys_cli.serving.http.service import Service


def create_app(service: Service) -> ASGIApp:
    """Return the app of a worker."""
    app = FastAPI(title="recsys", version=__version__, lifespan=_lifespan(service), docs_url=None, redoc_url=None)
    for routes in (recommend_routes, feedback_routes, item_routes, catalog_routes, page_routes, inference_routes):
        app.include_router(routes(service), responses=PROBLEMS)
    app.add_route("/docs", lambda _: HTMLResponse(reference(app.openapi()), headers=HEADERS), include_in_schema=False)
    app.mount("/", PageFiles())
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
