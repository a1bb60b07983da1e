"""Requests that cannot be answered in time are refused at once, with the time to wait."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers import Running, running

from recsys_cli.serving.http.work import ARRIVED, QUERY, Work, units_of
from recsys_cli.serving.query import Query

_ROWS = {"columns": {"userId": [1, 2, 3, 4] * 1_024, "movieId": [3, 44, 5, 7] * 1_024}}
_BATCH = {"requests": [{"user": user, "explain": True, "diversity": 0.5, "k": 50} for user in range(1, 129)]}
_CANDIDATES = {"user": 1, "candidates": list(range(20_000)), "history": list(range(20_000))}


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory, bundle_of: Callable[[str], Path]) -> Iterator[Running]:
    """A server with a time limit of a second: less than the work of 160 requests, on fast machines too."""
    with running(tmp_path_factory.mktemp("brief"), str(bundle_of("fm")), "--timeout", "1") as server:
        yield server


@pytest.mark.parametrize(
    ("path", "body"), [("/score", _ROWS), ("/recommend/batch", _BATCH), ("/recommend", _CANDIDATES)]
)
def test_a_flood_of_work_is_refused_and_not_late(path: str, body: dict[str, Any], brief: Running) -> None:
    content = json.dumps(body).encode()
    with ThreadPoolExecutor(160) as pool:
        answers = list(pool.map(lambda _: httpx.post(brief.url + path, content=content, timeout=60), range(256)))
    codes = Counter(answer.status_code for answer in answers)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert codes[200], codes
    assert len(refused) > 5, codes
    assert codes.keys() <= {200, 429, 504}
    assert codes[504] < 50, codes  # the machine may become slower, but no queue is late as a whole
    longest = max(int(answer.headers["Retry-After"]) for answer in refused)
    assert longest >= 1
    assert all(answer.elapsed.total_seconds() < 4 for answer in refused)
    time.sleep(longest)
    assert brief.post("/recommend", {"user": 1})["items"]


def test_work_is_measured_by_kind_and_late_by_the_time_left() -> None:
    work = Work(1e-6, limit=10.0)
    work.add("queries", 5 * QUERY)
    assert work.waiting == pytest.approx(0.005)
    for _ in range(50):
        work.measure("queries", QUERY, 1.0)
    assert work.waiting == pytest.approx(5, rel=0.05)
    assert work.seconds_of("rows", 1_000) == pytest.approx(0.001)
    ARRIVED.set(time.perf_counter())
    assert not work.is_late(7.5)
    assert work.is_late(8.5)
    ARRIVED.set(time.perf_counter() - 5)
    assert work.is_late(3.5)
    work.finish("queries", 5 * QUERY)
    assert work.waiting == 0


def test_units_are_ids_pairs_and_items() -> None:
    plain = units_of(Query(user=1, k=10), 60_000, by_pair=False)
    assert units_of(Query(user=1, k=10, candidates=range(20_000)), 60_000, by_pair=False) == plain + 20_000
    assert units_of(Query(user=1, k=10), 60_000, by_pair=True) == plain + 60_000
    assert units_of(Query(user=1, k=10, candidates=range(500)), 60_000, by_pair=True) == plain + 2 * 500
    assert units_of(Query(user=1, k=10, explain=True), 60_000, by_pair=False) > plain
