"""Routes of items, users, bundles and metrics."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from recsys_cli.serving.http.answers import catalog_item, json_response
from recsys_cli.serving.http.bodies import Bundles, Found, Item, UserAnswer
from recsys_cli.serving.http.fleet import Deployment
from recsys_cli.serving.http.problems import RequestError
from recsys_cli.serving.http.reading import Route
from recsys_cli.serving.http.service import Service
from recsys_cli.serving.http.settings import Settings
from recsys_cli.serving.http.user_history import item_by_id, user_history

K = Annotated[int, Query(ge=1)]


def catalog_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=Route)
    fleet, state, limits = service.fleet, service.desk.state, service.settings.limits

    @router.get("/items", responses={200: {"model": Found}})
    async def search(
        search: Annotated[str, Query(max_length=200)] = "", k: K = 20, bundle: str | None = None
    ) -> Response:
        """Return items by a part of their title or id, most popular first."""
        service.check("k", k, limits.k)
        deployment = fleet.named(bundle)
        items = await deployment.thread.call(lambda model: model.search(search, k))
        shown = [catalog_item(item, hidden=state.is_hidden(item.id)) for item in items]
        return json_response({"bundle": deployment.name, "items": shown})

    @router.get("/items/{item:path}", responses={200: {"model": Item}})
    async def one(item: str, bundle: str | None = None) -> Response:
        """Return an item."""
        deployment = fleet.named(bundle)
        found = await deployment.thread.call(lambda model: item_by_id(model, item))
        if found is None:
            raise RequestError(
                404, f"bundle {deployment.name} has no item {item}", "GET /items?search=TEXT finds items"
            )
        return json_response(catalog_item(found, hidden=state.is_hidden(found.id)))

    @router.get("/users/{user:path}", responses={200: {"model": UserAnswer}})
    async def history(user: str, k: K = 50, bundle: str | None = None) -> Response:
        """Return the latest interactions of a user: feedback, then the history of the bundle."""
        service.check("k", k, limits.k)
        deployment = service.deployment(bundle, user)
        recent = service.recent(user, deployment)
        found: dict[str, Any] = await deployment.thread.call(lambda model: user_history(model, user, recent, k))
        return json_response({"user": user, "bundle": deployment.name, **found})

    @router.get("/bundles", responses={200: {"model": Bundles}})
    async def bundles() -> Response:
        """Return the bundles with their traffic shares."""
        return json_response({"bundles": [_about(one, service.settings) for one in fleet.all]})

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Return the metrics of all workers for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def _about(deployment: Deployment, settings: Settings) -> dict[str, Any]:
    """Return the facts of a bundle, with its traffic share."""
    about = deployment.about
    return {
        "name": deployment.name,
        "version": deployment.version,
        "model": about["model"],
        "share": settings.shares.get(deployment.name, 0.0),
        "repeats": about.get("repeats", False),
        "num_users": about["num_users"],
        "num_items": about["num_items"],
        "dataset": about.get("dataset"),
        "metrics": about.get("metrics", {}),
        "upsert": deployment.items.about,
    }
