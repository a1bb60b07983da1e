"""Answers and errors as JSON; an error has a status, a message and the next step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from recsys_cli.errors import ConfigError, DataError, RecsysError


class RequestError(Exception):
    """A request without a result."""

    def __init__(self, status: int, message: str, hint: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.hint, self.headers = status, message, hint, headers

    def response(self) -> Response:
        """Return the JSON answer."""
        content = orjson.dumps({"error": self.message, "hint": self.hint})
        return Response(content, self.status, headers=self.headers, media_type="application/json")


def saturated(what: str, seconds: float) -> RequestError:
    """Return the problem of a queue with work for some seconds."""
    wait = str(max(1, math.ceil(seconds)))
    return RequestError(429, f"{what} is saturated", f"try again in {wait} s", {"Retry-After": wait})


def problem_of(error: Exception) -> RequestError:
    """Return the problem of an exception."""
    match error:
        case RequestError():
            return error
        case ConfigError() | DataError():
            return RequestError(422, error.message, error.hint or "/docs describes the body")
        case RecsysError():
            return RequestError(503, error.message, error.hint or "the log of the server has more")
        case TimeoutError():
            return RequestError(504, "the time of the request is over", "ask for less, or try again later")
    return RequestError(500, f"unexpected {type(error).__name__}", "the log of the server has the traceback")


_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def json_response(value: Any) -> Response:
    """Return a JSON response; ids of other types, such as dates, become text."""
    return Response(orjson.dumps(value, default=str, option=_OPTIONS), media_type="application/json")
