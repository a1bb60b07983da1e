"""Who may ask: tokens for all routes except the public ones, and pages of other sites."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from typer.testing import CliRunner

from recsys_cli.cli import app as cli
from recsys_cli.serving.http.app import PUBLIC, Guard, create_app
from recsys_cli.serving.http.service import Service
from recsys_cli.serving.http.settings import Settings
from tests.servers import Running, running

TOKEN = "a-token-of-enough-length"
SHOP = "https://shop.example"


@pytest.fixture(scope="module")
def guarded(bundle_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    folder = tmp_path_factory.mktemp("guarded") / "feedback"
    service = Service(Settings({"a": bundle_of("ease")}, {"a": 1.0}, feedback=folder, token=TOKEN), 0)
    guard = create_app(service)
    assert isinstance(guard, Guard)
    yield guard
    asyncio.run(service.close())


def _asked(guarded: Guard, method: str, path: str) -> int:
    async def ask() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url="http://localhost") as client:
            return (await client.request(method, path)).status_code

    return asyncio.run(ask())


def test_every_route_that_is_not_public_needs_the_token(guarded: Guard) -> None:
    asked = [
        (method, re.sub(r"\{[^}]*\}", "1", str(route.path)))
        for route in iter_route_contexts(guarded._app.routes)
        for method in route.methods or ()
    ]
    assert len({path for _, path in asked}) > 20
    for method, path in [*asked, ("GET", "/later"), ("GET", "/DOCS"), ("GET", "/v2/health/other")]:
        status = _asked(guarded, method, path)
        assert (status == 401) == (path not in PUBLIC), (method, path, status)


@pytest.fixture(scope="module")
def shared(bundle_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a token, for the pages of a shop."""
    folder = tmp_path_factory.mktemp("shared")
    with running(folder, str(bundle_of("ease")), "--cors", SHOP, env={"RECSYS_TOKEN": TOKEN}) as server:
        yield server


def _preflight(server: Running, origin: str, method: str = "POST") -> httpx.Response:
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization,content-type"}
    return server.ask("OPTIONS", "/recommend", headers={"Origin": origin, **asked})


def test_pages_of_an_allowed_site_may_ask(shared: Running) -> None:
    for method in ("POST", "PUT", "DELETE"):
        allowed = _preflight(shared, SHOP, method)
        assert (allowed.status_code, allowed.headers["Access-Control-Allow-Origin"]) == (200, SHOP)
    refused = _preflight(shared, SHOP, "PATCH")
    assert (refused.status_code, refused.json()["error"]) == (400, "Disallowed CORS method")
    assert shared.ask("OPTIONS", "/recommend", headers={"Origin": SHOP}).status_code == 401
    asked = {"Origin": SHOP, "Access-Control-Request-Method": "POST"}
    lengths = {"Content-Length": "0", "Transfer-Encoding": "chunked"}
    refused = shared.ask("OPTIONS", "/recommend", headers={**asked, **lengths})
    assert (refused.status_code, refused.headers["Connection"]) == (400, "close")
    token = {"Authorization": f"Bearer {TOKEN}"}
    for headers, status in ((token, 200), ({}, 401)):
        response = shared.ask("POST", "/recommend", {"user": 1}, headers={"Origin": SHOP, **headers})
        assert response.status_code == status
        assert response.headers["Access-Control-Allow-Origin"] == SHOP


@pytest.mark.parametrize(
    "origin", ["https://shop.example.evil", "http://shop.example", "https://evil-shop.example", "null", "https://x.shop.example"]
)  # fmt: skip
def test_pages_of_other_sites_may_not(origin: str, shared: Running, server: Running) -> None:
    for one in (shared, server):
        assert _preflight(one, origin).status_code == 403
        assert _preflight(one, origin).json()["error"] == "a page of another site may not ask"
        headers = {"Origin": origin, "Authorization": f"Bearer {TOKEN}"}
        response = one.ask("POST", "/recommend", {"user": 1}, headers=headers)
        assert response.status_code == 403
        assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize("origin", ["*", "shop.example", "https://shop.example/", "https://Shop.example", "null"])
def test_an_origin_is_scheme_and_host(origin: str, bundle_of: Callable[[str], Path], tmp_path: Path) -> None:
    line = ["serve", str(bundle_of("ease")), "--cors", origin, "--port", "0", "-w", str(tmp_path)]
    result = CliRunner().invoke(cli, line)
    assert result.exit_code == 2, result.output
    assert "--cors" in result.output
