"""The page at /docs has every route and body, and asks no other host."""

from __future__ import annotations

import json
import re
from html import escape

import httpx

from recsys_cli.serving.http import bodies
from tests.servers import Running


def test_the_reference_names_all_routes_and_bodies(server: Running) -> None:
    response = httpx.get(server.url + "/docs")
    assert response.status_code == 200
    page, document = response.text, server.get("/openapi.json")
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page
    assert {f'id="{name}"' for name in document["components"]["schemas"]} <= set(re.findall(r'id="\w+"', page))
    assert "integer ≥ 1" in page
    assert "<script" not in page
    assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
    links = set(re.findall(r'(?:href|src)="([^"]+)"', page))
    assert {link for link in links if not link.startswith(("/", "#"))} == set()
    targets = {link[1:] for link in links if link.startswith("#")}
    assert all(f'id="{target}"' in page for target in targets)
    for link in links:
        if link.startswith("/"):
            assert httpx.get(server.url + link).status_code == 200


def test_every_body_of_a_request_has_a_valid_example(server: Running) -> None:
    document, page = server.get("/openapi.json"), httpx.get(server.url + "/docs").text
    shown = set()
    for methods in document["paths"].values():
        for one in methods.values():
            if schema := one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema"):
                name = schema.get("$ref", "").rpartition("/")[2]
                example = (document["components"]["schemas"][name] if name else schema)["example"]
                if name:
                    getattr(bodies, name).model_validate(example)
                    assert f"Example: <code>{escape(json.dumps(example))}</code>" in page
                    shown.add(name)
    assert shown == {"RecommendBody", "BatchBody", "ScoreBody", "FeedbackBody", "ItemBody", "ItemsBody"}
