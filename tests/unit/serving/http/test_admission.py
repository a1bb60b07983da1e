"""Requests that cannot be answered in time are refused at once, with the time to wait."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from recsys_cli.serving.http.batching import ARRIVED, ROWS, ModelThread, Work
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.settings import Batching
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from tests.servers import running, until

_ROWS = {"columns": {"userId": [1, 2, 3, 4] * 1_024, "movieId": [3, 44, 5, 7] * 1_024}}
_CANDIDATES = {"user": 1, "candidates": list(range(20_000)), "history": list(range(20_000))}


Send = Callable[[ModelThread], Awaitable[Any]]
_SENDS: dict[str, tuple[Send, float]] = {
    "queries": (lambda thread: thread.recommend([Query(user=1)]), 1),
    "rows": (lambda thread: thread.score(_ROWS["columns"]), 4_096 / ROWS),
}


@pytest.mark.parametrize("kind", _SENDS)
def test_work_beyond_the_time_of_a_request_is_refused(kind: str, recommenders: Callable[[str], Recommender]) -> None:
    """Five requests and the call before them take less than the 800 s that a request has for its wait; six take more."""
    send, number = _SENDS[kind]
    seconds = 800 / (1 + 5.5 * number)
    refused = _flood(recommenders("fm"), send, Work(seconds, limit=1_000), Batching(), accepted=5)
    assert {one.headers["Retry-After"] for one in refused} == {str(math.ceil((1 + 5 * number) * seconds))}


@pytest.mark.parametrize("kind", _SENDS)
def test_requests_beyond_the_queue_are_refused(kind: str, recommenders: Callable[[str], Recommender]) -> None:
    refused = _flood(recommenders("fm"), _SENDS[kind][0], Work(1e-6, limit=1_000), Batching(queue=4), accepted=3)
    assert {one.headers["Retry-After"] for one in refused} == {"1"}


def _flood(model: Recommender, send: Send, work: Work, batching: Batching, *, accepted: int) -> list[Response]:
    """Send requests to a busy model thread, check that the first ones are answered, and return the refusals of the others."""
    busy, free = threading.Event(), threading.Event()

    def wait(_: Recommender) -> None:
        busy.set()
        free.wait()

    async def flood() -> list[Any]:
        thread = ModelThread("a", model, batching, work, Metrics(), lambda: 1)
        call = asyncio.create_task(thread.call(wait))
        await asyncio.to_thread(busy.wait)
        requests = [asyncio.create_task(send(thread)) for _ in range(20)]
        await asyncio.sleep(0)  # each request is refused or waits for the model
        assert [request.done() for request in requests] == [False] * accepted + [True] * (20 - accepted)
        free.set()
        results = await asyncio.gather(*requests, return_exceptions=True)
        await call
        assert await send(thread)  # an empty queue takes every request
        await thread.close()
        return results

    results = asyncio.run(flood())
    assert all(isinstance(one, list) for one in results[:accepted])
    refused = [one.response() for one in results[accepted:]]
    assert {one.status_code for one in refused} == {429}
    return refused


def test_a_flood_ends_in_answers_and_refusals(tmp_path: Path, bundle_of: Callable[[str], Path]) -> None:
    bodies = [("/score", _ROWS), ("/recommend", _CANDIDATES)]
    contents = [(path, json.dumps(body).encode()) for path, body in bodies] * 48
    with running(tmp_path, str(bundle_of("fm")), "--queue", "1") as server, ThreadPoolExecutor(48) as pool:
        codes = {*pool.map(lambda one: server.ask("POST", one[0], content=one[1]).status_code, contents)}
        assert codes <= {200, 429, 504}  # how many of each is a matter of the machine; the tests above have the numbers
        until(lambda: server.ask("POST", "/recommend", {"user": 1}).status_code == 200)


def test_work_is_measured_by_kind_and_late_by_the_time_left() -> None:
    work = Work(0.001, limit=10.0)
    work.add("queries", 5)
    assert work.waiting == pytest.approx(0.005)
    for _ in range(50):
        work.measure("queries", 1, 1.0)
    assert work.waiting == pytest.approx(5, rel=0.05)
    assert work.seconds_of("rows", ROWS) == pytest.approx(0.001)
    ARRIVED.set(time.perf_counter())
    assert not work.is_late(7.5)
    assert work.is_late(8.5)
    ARRIVED.set(time.perf_counter() - 5)
    assert work.is_late(3.5)
    work.finish("queries", 5)
    assert work.waiting == 0
