"""Traffic of a server in its file: counts of all requests, sums of sampled ones; one file for each worker."""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.http.traffic import facts_of
from tests.servers import running

BundleOf = Callable[[str], Path]


def lines(feedback: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in feedback.glob("traffic-*.jsonl") for line in path.read_text().splitlines()]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_requests_are_counted_and_sampled(tmp_path: Path, bundle_of: BundleOf, workers: str) -> None:
    with running(tmp_path, str(bundle_of("mf")), "--workers", workers) as server:
        for user in range(1, 9):
            server.post("/recommend", {"user": user})
        server.post("/recommend/batch", {"requests": [{"user": 1}, {"user": 9_999}]})
        assert server.ask("POST", "/recommend", {"user": 1, "k": 0}).status_code == 422
        server.get("/items?search=1")
        time.sleep(1.1)  # of the next sample, in any worker
        server.post("/score", {"columns": {"userId": [1, 2, 9_999], "movieId": [1, 7_777, None]}})
    written = lines(server.feedback)
    assert 1 <= len(written) <= int(workers)
    total = {kind: sum((Counter(one[kind]) for one in written), Counter()) for kind in ("status", "source", "seconds")}
    assert total["status"] == {"200": 10, "422": 1}, "other routes do not count"
    assert total["source"] == {"model": 9, "popularity": 1}
    assert 0 < total["seconds"][""] < 11
    samples = [one["sample"] for one in written]
    assert 3 < sum(one["rows"] for one in samples) <= 3 + 2 * int(workers)
    assert sum(one["unknown"].get("user", 0) for one in samples) >= 1
    assert sum(one["unknown"].get("item", 0) for one in samples) == 1
    assert all(time.time() - 60 < one["from"] < time.time() for one in written)
    with running(tmp_path, str(bundle_of("mf"))) as server:
        server.post("/recommend", {"user": 1})
    assert len(lines(server.feedback)) == len(written) + 1


def test_samples_have_unknown_values_nulls_and_numbers(bundle_of: BundleOf) -> None:
    model = load_bundle(bundle_of("fm"))
    rows = {"userId": [1, 9_999, None], "movieId": [1, 1, 8_888], "hour": [1, 2.5, None], "page": ["a", "b", "c"]}
    facts = facts_of(model, rows)
    assert (facts.rows, facts.unknown) == (3, {"user": 1, "item": 1})
    assert facts.nulls == {"hour": 1, "page": 0}
    assert facts.sums == {"hour": (2, 3.5, 7.25)}
    assert facts_of(model, {"userId": ["9999"]}).unknown == {"user": 1}
