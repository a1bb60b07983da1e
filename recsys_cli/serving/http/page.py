"""The page at `/`: static files under a strict policy, and examples of users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from recsys_cli.serving.http.answers import json_response
from recsys_cli.serving.http.reading import Route
from recsys_cli.serving.http.service import Service
from recsys_cli.serving.recommender import Recommender

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_MOST = 100


class PageFiles(StaticFiles):
    """The files of the page; scripts and styles come from this server only."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC, html=True)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file with the headers of the page."""
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


class Users(BaseModel):
    """Users of a bundle."""

    bundle: str
    users: list[Any]


def page_routes(service: Service) -> APIRouter:
    """Return the routes that only the page needs."""
    router = APIRouter(route_class=Route)

    @router.get("/users", responses={200: {"model": Users}})
    async def examples(k: Annotated[int, Query(ge=1, le=_MOST)] = 5, bundle: str | None = None) -> Response:
        """Return some users of the training data, evenly from the whole vocabulary."""
        deployment = service.fleet.named(bundle)
        users = await deployment.thread.call(lambda model: example_users(model, k))
        return json_response({"bundle": deployment.name, "users": users})

    return router


def example_users(model: Recommender, k: int) -> list[Any]:
    """Return k raw ids of trained users, or all of them if there are fewer."""
    users = model.served.users
    positions = np.unique(np.linspace(0, users.num_train - 1, min(k, users.num_train)).astype(np.int64))
    return list(users.values.take(positions).to_pylist()) if users.num_train else []
