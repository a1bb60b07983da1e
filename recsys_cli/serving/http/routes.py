"""Routes that read: recommend, score, similar, items, users, bundles and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from recsys_cli.serving.http import bodies
from recsys_cli.serving.http.fleet import Deployment
from recsys_cli.serving.http.problems import RequestError, json_response
from recsys_cli.serving.http.reading import Route, body_of, described
from recsys_cli.serving.http.service import Service, catalog_item, recommendations
from recsys_cli.serving.http.settings import Settings
from recsys_cli.serving.query import Answer, CatalogItem, RecentInteraction
from recsys_cli.serving.recommender import Recommender


def recommend_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=Route)
    limits = service.settings.limits

    @router.post(
        "/recommend", responses={200: {"model": bodies.Recommendations}}, openapi_extra=described(bodies.RecommendBody)
    )
    async def recommend(request: Request) -> Response:
        """Recommend items to a user, or for a history."""
        body = await body_of(request, bodies.RecommendBody, limits.body_bytes)
        return json_response(await service.recommend(body))

    @router.post(
        "/recommend/batch", responses={200: {"model": bodies.Answers}}, openapi_extra=described(bodies.BatchBody)
    )
    async def recommend_batch(request: Request) -> Response:
        """Recommend items for several requests; one invalid request fails all."""
        body = await body_of(request, bodies.BatchBody, limits.body_bytes)
        service.check("requests", len(body.requests), service.settings.batching.queue)
        return json_response({"answers": await service.recommend_all(body.requests)})

    @router.post("/score", responses={200: {"model": bodies.Scores}}, openapi_extra=described(bodies.ScoreBody))
    async def score(request: Request) -> Response:
        """Score raw rows."""
        body = await body_of(request, bodies.ScoreBody, limits.body_bytes)
        deployment = service.fleet.named(body.bundle)
        scores = await service.score(deployment, columns_of(body))
        return json_response({**deployment.identity, "scores": scores})

    @router.get("/similar/{item:path}", responses={200: {"model": bodies.Recommendations}})
    async def similar(item: str, k: Annotated[int, Query(ge=1)] = 10, bundle: str | None = None) -> Response:
        """Return the nearest items of an item."""
        service.check("k", k, limits.k)
        deployment = service.fleet.named(bundle)
        hidden = {str(one) for one in service.desk.state.hidden}
        answer: Answer = await deployment.thread.call(lambda model: model.similar(item, k + len(hidden)))
        items = [one for one in answer.items if str(one.item.id) not in hidden][:k]
        note = answer.note if items or answer.note else "all similar items are hidden"
        shown = Answer(items, answer.source if items else "none", note=note)
        return json_response(recommendations(shown, deployment, explain=True))

    return router


def columns_of(body: bodies.ScoreBody) -> dict[str, list[Any]]:
    """Return the raw rows of a body as columns.

    Raises:
        RequestError: The body has neither rows nor columns, both, or rows with different keys.
    """
    if (body.columns is None) == (body.rows is None):
        raise RequestError(422, "the body needs columns or rows", 'such as {"rows": [{"userId": 1, "movieId": 2}]}')
    if body.columns is not None:
        columns: dict[str, list[Any]] = dict(body.columns)
        return columns
    rows = body.rows or []
    names = rows[0].keys()
    for number, row in enumerate(rows):
        if row.keys() != names:
            raise RequestError(422, f"rows.{number}: other keys than in rows.0", "give null for missing values")
    return {name: [row[name] for row in rows] for name in names}


K = Annotated[int, Query(ge=1)]


def catalog_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=Route)
    fleet, state, limits = service.fleet, service.desk.state, service.settings.limits

    @router.get("/items", responses={200: {"model": bodies.Found}})
    async def search(
        search: Annotated[str, Query(max_length=200)] = "", k: K = 20, bundle: str | None = None
    ) -> Response:
        """Return items by a part of their title or id, most popular first."""
        service.check("k", k, limits.k)
        deployment = fleet.named(bundle)
        items = await deployment.thread.call(lambda model: model.catalog.search(search, k))
        shown = [catalog_item(item, hidden=state.is_hidden(item.id)) for item in items]
        return json_response({"bundle": deployment.name, "items": shown})

    @router.get("/items/{item:path}", responses={200: {"model": bodies.Item}})
    async def one(item: str, bundle: str | None = None) -> Response:
        """Return an item."""
        deployment = fleet.named(bundle)
        found = await deployment.thread.call(lambda model: item_by_id(model, item))
        if found is None:
            raise RequestError(
                404, f"bundle {deployment.name} has no item {item}", "GET /items?search=TEXT finds items"
            )
        return json_response(catalog_item(found, hidden=state.is_hidden(found.id)))

    @router.get("/users", responses={200: {"model": bodies.Users}})
    async def examples(k: Annotated[int, Query(ge=1, le=100)] = 5, bundle: str | None = None) -> Response:
        """Return some users of the training data, evenly from the whole vocabulary."""
        deployment = fleet.named(bundle)
        users = await deployment.thread.call(lambda model: example_users(model, k))
        return json_response({"bundle": deployment.name, "users": users})

    @router.get("/users/{user:path}", responses={200: {"model": bodies.UserAnswer}})
    async def history(user: str, k: K = 50, bundle: str | None = None) -> Response:
        """Return the latest interactions of a user: feedback, then the history of the bundle."""
        service.check("k", k, limits.k)
        deployment = service.deployment(bundle, user)
        recent = service.recent(user, deployment)
        found: dict[str, Any] = await deployment.thread.call(lambda model: user_history(model, user, recent, k))
        return json_response({"user": user, "bundle": deployment.name, **found})

    @router.get("/bundles", responses={200: {"model": bodies.Bundles}})
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
    about, why_not = deployment.about, deployment.why_no_upserts
    return {
        "name": deployment.name,
        "version": deployment.version,
        "number": deployment.number,
        "model": about["model"],
        "share": settings.shares.get(deployment.name, 0.0),
        "repeats": about.get("repeats", False),
        "num_users": about["num_users"],
        "num_items": about["num_items"],
        "dataset": about.get("dataset"),
        "metrics": about.get("metrics", {}),
        "upsert": {"possible": why_not is None, "reason": why_not, "columns": deployment.columns},
    }


def example_users(model: Recommender, k: int) -> list[Any]:
    """Return k raw ids of trained users, or all of them if there are fewer."""
    users = model.served.users
    positions = np.unique(np.linspace(0, users.num_train - 1, min(k, users.num_train)).astype(np.int64))
    return list(users.values.take(positions).to_pylist()) if users.num_train else []


def item_by_id(model: Recommender, item: Any) -> CatalogItem | None:
    """Return an item of the catalog by its raw id."""
    place = int(model.catalog.places_of([item])[0])
    return None if place < 0 else model.catalog.item(place)


def user_history(model: Recommender, user: Any, recent: Sequence[RecentInteraction], k: int) -> dict[str, Any]:
    """Return the latest k interactions of a user, newest first, as JSON values of `bodies.UserAnswer`."""
    served = model.served
    encoded, of_feedback = int(served.users.encode([user])[0]), served.items.encode([one.item for one in recent])
    own = served.history(encoded, recent, of_feedback)
    given = dict(zip(of_feedback.tolist(), recent, strict=True))
    unknown = [one for row, one in zip(of_feedback, recent, strict=True) if row < 0]
    found = [(one.item, one.label, True) for one in reversed(unknown)]
    latest = own.items[::-1][:k].astype("int64")
    for row, item, label in zip(
        latest.tolist(), served.items.decode(latest).to_pylist(), own.labels[::-1], strict=False
    ):
        found.append((item, given[row].label if row in given else float(label), row in given))
    shown = [
        {"item": item, "title": _title(model, item), "label": label, "feedback": by_feedback}
        for item, label, by_feedback in found[:k]
    ]
    return {"known": encoded >= 0, "num_interactions": len(own) + len(unknown), "history": shown}


def _title(model: Recommender, item: Any) -> str | None:
    found = item_by_id(model, item)
    return None if found is None else found.title
