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

_Key = tuple[Id, Id, str | None, float | None]
"""User, item, event and time; without an event and a time the feedback of the pair."""
_Inserts = dict[_Key, asyncio.Future[None]]
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
        given: dict[_Key, tuple[FeedbackEvent, float]] = {}
        for one in body.events:
            pair = service.fleet.id_of(Role.USER, one.user), service.fleet.id_of(Role.ITEM, one.item)
            moment = now if one.time is None else one.time
            key = (*pair, one.event, None if one.event is None else moment)
            if overwrite or key not in given:
                given[key] = one, moment
        async with _alone(inserts, given):
            events = [
                desk.event("put", user=key[0], item=key[1], label=one.label, time=moment, event=one.event)
                for key, (one, moment) in given.items()
                if overwrite or not desk.state.holds(*key)
            ]
            return await _written(events, len(body.events), dict.fromkeys(item for _, item, *_ in given))

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
        """Insert feedback; a pair of user and item with feedback stays as it is, and so does a known event of the same time."""
        return await put(request, overwrite=False)

    @router.put("/feedback", responses=answers, openapi_extra=described(FeedbackBody))
    async def overwrite(request: Request) -> Response:
        """Insert feedback, or replace the one of the same user and item, and of the same event and time."""
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
async def _alone(inserts: _Inserts, keys: Collection[_Key]) -> AsyncIterator[None]:
    """Wait for the inserts under way of some keys, and hold up later ones until the end."""
    while under_way := {inserts[key] for key in keys if key in inserts}:
        await asyncio.wait(under_way)
    done = asyncio.get_running_loop().create_future()
    inserts.update(dict.fromkeys(keys, done))
    try:
        yield
    finally:
        for key in keys:
            del inserts[key]
        done.set_result(None)
