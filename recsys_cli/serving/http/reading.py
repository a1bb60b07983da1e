"""Bodies of requests, within the limit of bytes, and their description in the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from recsys_cli.config.document import Document
from recsys_cli.config.problems import describe as describe_problems
from recsys_cli.registry import suggest
from recsys_cli.serving.http.bodies import ProblemAnswer
from recsys_cli.serving.http.problems import RequestError

Body = TypeVar("Body", bound=BaseModel)
T = TypeVar("T")
_HINT = "/docs describes the body"
_REF = "#/components/schemas/{model}"
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemAnswer, "description": text}
    for status, text in (
        (400, "Malformed request"),
        (401, "Missing or wrong token"),
        (403, "Request of another site"),
        (404, "Unknown bundle or path"),
        (413, "Body above the limit"),
        (415, "Compressed body"),
        (422, "Invalid value"),
        (429, "Saturated; Retry-After has the seconds to wait"),
        (431, "Headers above the limit"),
        (503, "Not ready, or failed"),
        (504, "Time is over"),
    )
}
"""Responses without a result, for the OpenAPI document."""


_MOST_PROBLEMS = 8
"""Maximum problems in an answer."""
_MOST_COUNTED = 1_000
"""Maximum problems that are described at all: a description of 400,000 unknown keys takes seconds."""
_MOST_VALUES = 300_000
"""Maximum values of a body. One value is eight times its two bytes in memory, and a problem is a hundred times."""
_LARGE = 1 << 16
"""Minimum bytes of a body that is parsed on a thread, while others are served."""


class Route(APIRoute):
    """Route that refuses unknown query parameters.

    It calls an endpoint without parameters directly: FastAPI's resolution of none takes a tenth of a request.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint, or FastAPI's handler if it has parameters."""
        known = [one.alias for one in self.dependant.query_params]
        only_request = self.dependant.request_param_name and not (known or self.dependant.path_params)
        handler = self.endpoint if only_request else super().get_route_handler()

        async def checked(request: Request) -> Response:
            if request.scope["query_string"] and (unknown := request.query_params.keys() - set(known)):
                name = sorted(unknown)[0]
                raise RequestError(
                    422, f"unknown query parameter {name!r}{suggest(name, known)}",
                    f"the parameters are {', '.join(known)}" if known else "the route has no query parameters",
                )  # fmt: skip
            response: Response = await handler(request)
            return response

        return checked


async def content_of(request: Request, most: int) -> bytes:
    """Return the body.

    Raises:
        RequestError: The body is above the limit, or compressed.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError(415, "the body is compressed", "send it without Content-Encoding")
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise RequestError(
                    413, f"the body is above {most:,} bytes", "send less at once", {"Connection": "close"}
                )
            parts.append(part)
    except ClientDisconnect:
        raise RequestError(400, "the body ended early", "send it again") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def body_of(request: Request, kind: type[Body], most: int) -> Body:
    """Return the parsed body.

    Raises:
        RequestError: The body is above the limit, or invalid.
    """
    content = await content_of(request, most)
    return await apart(len(content), lambda: _parsed_json(kind, content))


async def apart(size: int, work: Callable[[], T]) -> T:
    """Return the result of work on a body: on a thread if it is large."""
    return await asyncio.to_thread(work) if size >= _LARGE else work()


def check_number_of_values(content: bytes) -> None:
    """Check the number of values of JSON, by its commas, before they are in memory.

    Raises:
        RequestError: It is above the limit.
    """
    if len(content) > _MOST_VALUES and (number := content.count(b",")) > _MOST_VALUES:
        raise RequestError(
            422, f"the body has {number:,} values, above the limit of {_MOST_VALUES:,}", "send less at once"
        )


def _parsed_json(kind: type[Body], content: bytes) -> Body:
    check_number_of_values(content)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        if error.error_count() > _MOST_COUNTED:
            raise RequestError(422, f"the body has {error.error_count():,} problems", _HINT) from None
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise RequestError(400, first["msg"], _HINT) from None
        raise _invalid(error, kind, from_json(content)) from None


def parsed(kind: type[Body], values: dict[str, Any]) -> Body:
    """Return a body of some values.

    Raises:
        RequestError: A value is invalid.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _invalid(error, kind, values) from None


def _invalid(error: ValidationError, kind: type[BaseModel], values: Any) -> RequestError:
    """Return the problem of invalid values, with one sentence for each field."""
    if not isinstance(values, dict):
        return RequestError(422, "the body is no JSON object", _HINT)
    lines = describe_problems(error, kind, Document(values))
    more = len(lines) - _MOST_PROBLEMS
    shown = [*lines[:_MOST_PROBLEMS], f"and {more} more"] if more > 0 else lines
    return RequestError(422, "; ".join(shown), _HINT)


def described(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the description of a JSON body, for `openapi_extra`."""
    schema = {"$ref": _REF.format(model=kind.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe(app: FastAPI, *kinds: type[BaseModel], has_token: bool) -> None:
    """Add the schemas of bodies, and the bearer token if there is one, to the OpenAPI document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _, definitions = models_json_schema([(kind, "validation") for kind in kinds], ref_template=_REF)
            components = document.setdefault("components", {})
            components.setdefault("schemas", {}).update(definitions["$defs"])
            if has_token:
                components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                document["security"] = [{"token": []}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
