"""Routes of feedback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from recsys_cli.features.schema import Role
from recsys_cli.serving.feedback.event import Event, Id
from recsys_cli.serving.http.answers import json_response
from recsys_cli.serving.http.bodies import FeedbackAnswer, FeedbackBody, FeedbackEvent
from recsys_cli.serving.http.reading import Route, body_of, described
from recsys_cli.serving.http.service import Service

_Inserts = dict[tuple[Id, Id], asyncio.Future[None]]
_Id = Annotated[str, Query(max_length=1_000)]


def feedback_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=Route)
    desk, limits = service.desk, service.settings.limits
    answers: dict[int | str, dict[str, Any]] = {200: {"model": FeedbackAnswer}}
    inserts: _Inserts = {}

    async def put(request: Request, *, overwrite: bool) -> Response:
        body = await body_of(request, FeedbackBody, limits.body_bytes)
        now = time.time()
        given: dict[tuple[Id, Id], FeedbackEvent] = {}
        for one in body.events:
            pair = service.fleet.id_of(Role.USER, one.user), service.fleet.id_of(Role.ITEM, one.item)
            if overwrite or pair not in given:
                given[pair] = one
        async with _alone(inserts, given):
            events = [
                desk.event("put", user=user, item=item, label=one.label, time=now if one.time is None else one.time)
                for (user, item), one in given.items()
                if overwrite or not desk.state.has(user, item)
            ]
            return await _written(events, len(body.events), dict.fromkeys(item for _, item in given))

    async def _written(events: list[Event], given: int, items: Iterable[Id]) -> Response:
        if events:
            await desk.append(events)
        unchanged = given - len(events)
        return json_response({
            "written": len(events),
            "unchanged": unchanged,
            "unknown_items": service.fleet.num_unknown(list(items)),
            "fsync": service.settings.fsync,
        })  # fmt: skip

    @router.post("/feedback", responses=answers, openapi_extra=described(FeedbackBody))
    async def insert(request: Request) -> Response:
        """Insert feedback; a pair of user and item with feedback stays as it is."""
        return await put(request, overwrite=False)

    @router.put("/feedback", responses=answers, openapi_extra=described(FeedbackBody))
    async def overwrite(request: Request) -> Response:
        """Insert feedback, or replace the one of the same user and item."""
        return await put(request, overwrite=True)

    @router.delete("/feedback", responses=answers)
    async def delete(user: _Id, item: _Id | None = None) -> Response:
        """Delete the feedback of a user: on one item, or all of it."""
        own: Id = user if desk.state.of_user(user) else service.fleet.id_of(Role.USER, user)
        if item is None:
            return await _written([desk.event("delete", user=own)], 1, [])
        one: Id = item if desk.state.has(own, item) else service.fleet.id_of(Role.ITEM, item)
        return await _written([desk.event("delete", user=own, item=one)], 1, [one])

    return router


@asynccontextmanager
async def _alone(inserts: _Inserts, pairs: Collection[tuple[Id, Id]]) -> AsyncIterator[None]:
    """Wait for the inserts under way of some pairs, and hold up later ones until the end."""
    while under_way := {inserts[pair] for pair in pairs if pair in inserts}:
        await asyncio.wait(under_way)
    done = asyncio.get_running_loop().create_future()
    inserts.update(dict.fromkeys(pairs, done))
    try:
        yield
    finally:
        for pair in pairs:
            del inserts[pair]
        done.set_result(None)
