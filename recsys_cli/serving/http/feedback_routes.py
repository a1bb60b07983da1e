"""Routes that write: feedback, and items hidden, shown or upserted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from recsys_cli.features.schema import Role
from recsys_cli.registry import suggest
from recsys_cli.serving.feedback.state import Event, Id
from recsys_cli.serving.http.bodies import FeedbackAnswer, FeedbackBody, FeedbackEvent, ItemAnswer, ItemBody, ItemsBody
from recsys_cli.serving.http.fleet import Deployment
from recsys_cli.serving.http.problems import RequestError, json_response
from recsys_cli.serving.http.reading import Route, body_of, described
from recsys_cli.serving.http.service import Service

_Key = tuple[Id, Id, str | None, float | None]
"""User, item, event and time; without an event and a time the feedback of the pair."""
_Id = Annotated[str, Query(max_length=1_000)]


def feedback_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=Route)
    desk, limits = service.desk, service.settings.limits
    answers: dict[int | str, dict[str, Any]] = {200: {"model": FeedbackAnswer}}

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
        arms = {user: service.fleet.arm_of(user) for user, *_ in given}
        async with desk.claimed(given):
            events = [
                desk.event(
                    "put", user=key[0], item=key[1], label=one.label, time=moment, event=one.event, **arms[key[0]]
                )
                for key, (one, moment) in given.items()
                if overwrite or not desk.state.holds(*key)
            ]
            return await _written(service, events, len(body.events), dict.fromkeys(item for _, item, *_ in given))

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
        async with desk.claimed(()):
            own: Id = user if desk.state.of_user(user) else service.fleet.id_of(Role.USER, user)
            if item is None:
                is_held = bool(desk.state.of_user(own)) or not desk.is_current
                return await _written(service, [desk.event("delete", user=own)] if is_held else [], 1, [])
            one: Id = item if desk.state.has(own, item) else service.fleet.id_of(Role.ITEM, item)
            is_held = desk.state.has(own, one) or not desk.is_current
            return await _written(service, [desk.event("delete", user=own, item=one)] if is_held else [], 1, [one])

    return router


async def _changed(service: Service, bodies: Mapping[Id, ItemBody]) -> Response:
    """Write changes of items, and answer after their effect."""
    desk, present = service.desk, service.desk.state.upserts
    upserts = [
        desk.event("upsert", item=item, title=_title(body, present.get(str(item))), features=body.features)
        for item, body in bodies.items()
        if body.features is not None
    ]
    takers = await _checked(service, upserts) if upserts else []
    same = {item: (one.features, one.title) for item, one in present.items()}
    fresh = [one for one in upserts if same.get(str(one.item)) != (one.features, one.title)]
    seen = [
        desk.event("hide" if body.hidden else "show", item=item)
        for item, body in bodies.items()
        if body.hidden is not None
    ]
    given, bundles = len(upserts) + len(seen), [one.name for one in takers]
    return await _written(service, [*fresh, *seen], given, bodies, bundles=bundles)


async def _written(
    service: Service, events: Sequence[Event], given: int, items: Iterable[Id], **more: Sequence[str]
) -> Response:
    """Append events to the log, and answer after their effect."""
    if events:
        await service.desk.append(events)
    await service.fleet.follow(service.desk.state)
    unknown = service.fleet.num_unknown(list(items))
    counts = {"written": len(events), "unchanged": given - len(events), "unknown_items": unknown}
    return json_response({**counts, "fsync": service.settings.fsync, **more})


def item_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=Route)
    desk, limits = service.desk, service.settings.limits
    turn = asyncio.Lock()  # one request after another, so that the bound of upserts holds
    answers: dict[int | str, dict[str, Any]] = {200: {"model": ItemAnswer}}

    @router.put("/items/{item:path}", responses=answers, openapi_extra=described(ItemBody))
    async def change(item: str, request: Request) -> Response:
        """Upsert an item with raw features; or hide it from all answers, or show it again."""
        body = await body_of(request, ItemBody, limits.body_bytes)
        service.check("id", len(item), 1_000)
        async with turn:
            return await _changed(service, {service.fleet.id_of(Role.ITEM, item): body})

    @router.post("/items", responses=answers, openapi_extra=described(ItemsBody))
    async def change_many(request: Request) -> Response:
        """Upsert, hide or show several items; one invalid item fails all."""
        body = await body_of(request, ItemsBody, limits.body_bytes)
        async with turn:
            return await _changed(service, {service.fleet.id_of(Role.ITEM, one.item): one for one in body.items})

    @router.delete("/items/{item:path}", responses=answers)
    async def restore(item: str) -> Response:
        """Take the upserts of an item back: a new one leaves the catalog, others have the features of the training."""
        service.check("id", len(item), 1_000)
        known = item if item in desk.state.upserts else service.fleet.id_of(Role.ITEM, item)
        events = [desk.event("upsert", item=known)] if str(known) in desk.state.upserts else []
        return await _written(service, events, 1, [known], bundles=())

    return router


async def _checked(service: Service, events: Sequence[Event]) -> list[Deployment]:
    """Return the bundles that take upserts, after a check of all values.

    Raises:
        RequestError: No bundle uses features of items, or a column is unknown or missing.
        DataError: A value does not fit its column.
    """
    takers = [one for one in service.fleet.all if one.why_no_upserts is None]
    if not takers:
        reasons = "; ".join(f"{one.name}: {one.why_no_upserts}" for one in service.fleet.all)
        hint = 'serve a bundle of a model with item features, such as two-tower or fm; {"hidden": true} works for all'
        raise RequestError(422, f"features: no bundle can use them: {reasons}", hint)
    limits = service.settings.limits
    names = service.desk.state.upserts.keys() | {str(event.item) for event in events}
    hint = "train with the new items, export, and take their upserts back: DELETE /items/ITEM"
    service.check("upserted items", len(names), limits.upserts, hint=hint)
    for event in events:
        _check_columns(event, takers)
        size = len(json.dumps([event.title, event.features]))
        service.check(f"item {event.item}: bytes", size, limits.upsert_bytes, hint="give shorter texts and lists")
    for one in takers:
        await one.check(events)
    return takers


def _title(body: ItemBody, present: Event | None) -> str | None:
    return present.title if body.title is None and present is not None else body.title


def _check_columns(event: Event, takers: Sequence[Deployment]) -> None:
    """Check the names of columns.

    Raises:
        RequestError: A column is unknown to all bundles, or missing for one.
    """
    given = (event.features or {}).keys()
    known = dict.fromkeys(column for one in takers for column in one.columns)
    columns = f"the columns are {', '.join(known)}"
    if unknown := [name for name in given if name not in known]:
        text = f"item {event.item}: no column {unknown[0]!r}{suggest(unknown[0], list(known))}"
        raise RequestError(422, text, f'{columns}; the title has its own key, "title"')
    for one in takers:
        if missing := [name for name in one.columns if name not in given]:
            text = f"item {event.item}: bundle {one.name} needs {', '.join(missing)}"
            raise RequestError(422, text, f"{columns}; give null for an unknown value")
