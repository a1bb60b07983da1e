"""Routes of answers: recommend, score, similar."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from recsys_cli.serving.http.answers import json_response, recommendations
from recsys_cli.serving.http.bodies import Answers, BatchBody, Recommendations, RecommendBody, ScoreBody, Scores
from recsys_cli.serving.http.problems import RequestError
from recsys_cli.serving.http.reading import Route, body_of, described
from recsys_cli.serving.http.service import Service
from recsys_cli.serving.query import Answer


def recommend_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=Route)
    limits = service.settings.limits

    @router.post("/recommend", responses={200: {"model": Recommendations}}, openapi_extra=described(RecommendBody))
    async def recommend(request: Request) -> Response:
        """Recommend items to a user, or for a history."""
        body = await body_of(request, RecommendBody, limits.body_bytes)
        return json_response(await service.recommend(body))

    @router.post("/recommend/batch", responses={200: {"model": Answers}}, openapi_extra=described(BatchBody))
    async def recommend_batch(request: Request) -> Response:
        """Recommend items for several requests; one invalid request fails all."""
        body = await body_of(request, BatchBody, limits.body_bytes)
        service.check("requests", len(body.requests), service.settings.batching.queue)
        return json_response({"answers": await service.recommend_all(body.requests)})

    @router.post("/score", responses={200: {"model": Scores}}, openapi_extra=described(ScoreBody))
    async def score(request: Request) -> Response:
        """Score raw rows."""
        body = await body_of(request, ScoreBody, limits.body_bytes)
        deployment = service.fleet.named(body.bundle)
        scores = await service.score(deployment, columns_of(body))
        return json_response({"bundle": deployment.name, "version": deployment.version, "scores": scores})

    @router.get("/similar/{item:path}", responses={200: {"model": Recommendations}})
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


def columns_of(body: ScoreBody) -> dict[str, list[Any]]:
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
