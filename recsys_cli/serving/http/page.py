"""The pages at `/` and `/docs`: static files under a strict policy, and all routes and bodies as plain HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageFiles(StaticFiles):
    """The files of the page; scripts and styles come from this server only."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC, html=True)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file with the headers of the page."""
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="/icon.svg">
<link rel="stylesheet" href="/reference.css">
</head>
<body>
<h1>{title}</h1>
<p>For programs: <a href="/openapi.json">openapi.json</a>.</p>
<h2>Routes</h2>
{routes}
<h2>Bodies</h2>
{bodies}
</body>
</html>
"""
_LIMITS = (
    ("minimum", "≥"),
    ("maximum", "≤"),
    ("minLength", "length ≥"),
    ("maxLength", "length ≤"),
    ("minItems", "items ≥"),
)


def reference(document: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI document."""
    routes = [
        _route(path, method, one) for path, methods in document["paths"].items() for method, one in methods.items()
    ]
    bodies = [_body(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    return _PAGE.format(title=escape(document["info"]["title"]), routes="\n".join(routes), bodies="\n".join(bodies))


def _route(path: str, method: str, one: Mapping[str, Any]) -> str:
    rows = [
        (
            f"{given['name']} ({given['in']})",
            _type(given["schema"]),
            _remarks(given["schema"], required=given["required"]),
        )
        for given in one.get("parameters", ())
    ]
    content = {"body": one.get("requestBody", {})} | {
        f"answer {status}": answer for status, answer in one["responses"].items()
    }
    for name, given in content.items():
        for kind, media in given.get("content", {}).items():
            shown = kind if kind != "application/json" else escape(given.get("description", ""))
            rows.append((name, _type(media.get("schema", {})), shown))
    title = f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
    return f"{title}\n<p>{escape(one.get('description', ''))}</p>\n{_table(rows)}"


def _body(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (key, _type(one), _remarks(one, required=key in required)) for key, one in schema.get("properties", {}).items()
    ]
    example = f"<p>Example: <code>{escape(json.dumps(schema['example']))}</code></p>" if "example" in schema else ""
    about = escape(schema.get("description", ""))
    return f'<h3 id="{escape(name)}">{escape(name)}</h3>\n<p>{about}</p>\n{example}{_table(rows)}'


def _table(rows: Iterable[tuple[str, str, str]]) -> str:
    cells = (f"<tr><th>{escape(name)}</th><td>{kind}</td><td>{remarks}</td></tr>" for name, kind, remarks in rows)
    return f"<table>\n{chr(10).join(cells)}\n</table>"


def _remarks(schema: Mapping[str, Any], *, required: bool) -> str:
    default = f"default {schema['default']}" if schema.get("default") is not None else ""
    parts = (schema.get("description", ""), "required" if required else default)
    return escape("; ".join(part for part in parts if part))


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema in words, with links to bodies."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if members := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(map(_type, members)))
    if values := schema.get("enum"):
        return escape(" or ".join(map(str, values)))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"object of {_type(values)}"
    limits = (f"{sign} {schema[key]}" for key, sign in _LIMITS if key in schema and abs(schema[key]) < 2**53)
    return escape(" ".join([str(schema.get("type", "any")), *limits]))
