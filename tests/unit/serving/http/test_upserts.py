"""Upserts over HTTP: at once in all answers, durable, in all workers and in a swapped bundle."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from recsys_cli.serving.feedback.table import TableForm, compact
from tests.servers import Running, running, until

BundleOf = Callable[[str], Path]
LIKE_43 = {"genres": ["Drama"], "year": 1983}
"""The features of item 43, which is cold."""


def scores(server: Running, user: int = 5) -> dict[Any, float]:
    answer = server.post("/recommend", {"user": user, "k": 100, "exclude_seen": False})
    return {one["item"]: one["score"] for one in answer["items"]}


def upsert(server: Running, item: object, features: dict[str, Any], **body: Any) -> httpx.Response:
    return server.ask("PUT", f"/items/{item}", {"features": features, **body})


def page_example() -> list[str]:
    """The lines of the example in docs/howto/serve.md."""
    page = Path(__file__).resolve().parents[4] / "docs" / "howto" / "serve.md"
    (block,) = re.findall(r"^```bash\n(curl -s -X PUT .*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return block.splitlines()


def run(line: str, server: Running) -> Any:
    words = shlex.split(line.replace("http://127.0.0.1:8000", server.url))
    return json.loads(subprocess.run(words, check=True, capture_output=True, timeout=60).stdout)


def test_a_new_item_is_in_all_answers_at_once(tmp_path: Path, bundle_of: BundleOf) -> None:
    with running(tmp_path, str(bundle_of("fm")), str(bundle_of("mf")), "--share", "fm=1,mf=0") as server:
        before = scores(server)
        assert server.ask("GET", "/items/9000").status_code == 404
        put, shown, *others = page_example()
        assert run(put.replace("]}}", '], "year": 1981}}'), server) == json.loads(shown.removeprefix("# "))
        found, similar = (run(line, server)["items"] for line in others)
        assert ([one["item"] for one in found], len(similar)) == ([9000], 3)
        after = scores(server)
        assert after == pytest.approx(before | {9000: after[9000]}, abs=1e-6)
        assert after[9000] == pytest.approx(before[41], abs=1e-6)
        assert server.post("/score", {"rows": [{"userId": 5, "movieId": 9000}]})["scores"] == pytest.approx(
            [after[9000]]
        )
        assert [one["item"] for one in server.get("/items?search=brand")["items"]] == [9000]
        assert server.get("/items/9000")["features"] == {"genres": ["Drama", "War"], "year": ["1981"]}
        assert 9000 in [one["item"] for one in server.get("/similar/41?k=5")["items"]]
        assert server.get("/similar/9000?k=1")["items"][0]["item"] in {1, 21, 41}
        assert upsert(server, "09000", {"genres": ["Drama", "War"], "year": 1981}).json()["unchanged"] == 1

        server.post("/feedback", {"events": [{"user": 5, "item": 9000}]})
        assert 9000 not in server.recommended(5, k=100)
        assert server.get("/users/5?k=1")["history"][0]["title"] == "Brand New"

        entries = [{"item": 43, "features": {"genres": [], "year": None}}, {"item": 9000, "hidden": True}]
        assert server.post("/items", {"items": entries})["written"] == 2
        assert 9000 not in scores(server)
        assert server.ask("DELETE", "/items/43").json()["written"] == 1
        assert server.ask("DELETE", "/items/43").json()["unchanged"] == 1
        assert scores(server) == pytest.approx(before, abs=1e-6)
        assert 'recsys_feedback_events_total{kind="upsert"} 3.0' in server.ask("GET", "/metrics").text
        about = {one["name"]: one["upsert"] for one in server.get("/bundles")["bundles"]}
        assert about["fm"]["possible"]
        assert about["fm"]["columns"]["year"] == "int64"
        assert about["mf"]["reason"] == "mf scores items by their ids, not by features"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"features": {"genres": ["War"]}}, "bundle fm needs year"),
        ({"features": {"genres": ["War"], "yaer": 1990}}, "no column 'yaer' (did you mean year?)"),
        ({"features": {"genres": ["War"], "year": "soon"}}, "column year: 'soon' is no int64"),
        ({"features": {"genres": [1.5], "year": 1990}}, "column genres: 1.5 is no"),
        ({"features": {"genres": [{}], "year": 1990}}, "features.genres"),
        ({"features": {"genres": ["x" * 20_000], "year": 1990}}, "above the limit of 16,384"),
        ({"title": "alone"}, "give hidden, or features"),
        ({"hidden": True, "typo": 1}, "typo"),
    ],
)
def test_what_does_not_fit_is_refused(server: Running, body: dict[str, Any], message: str) -> None:
    response = server.ask("PUT", "/items/901", body)
    assert response.status_code == 422
    assert message in response.json()["error"]
    assert server.ask("PUT", "/items/x", {"features": LIKE_43}).status_code == 422
    assert server.ask("GET", "/items/901?bundle=fm").status_code == 404


@pytest.mark.slow
def test_upserts_survive_kills_swaps_and_compaction_in_all_workers(tmp_path: Path, bundle_of: BundleOf) -> None:
    link = tmp_path / "current"
    link.symlink_to(bundle_of("two-tower"))

    def everywhere(server: Running, item: int) -> bool:
        """Whether all of some new connections, which are of any worker, have the item."""
        return all(item in scores(server) for _ in range(8))

    with running(tmp_path, f"main={link}", "--workers", "2", "--fsync", "always") as server:
        for year in (1990, 1983):
            assert upsert(server, 902, {"genres": ["Drama"], "year": year}).status_code == 200
        until(lambda: everywhere(server, 902))
        expected = scores(server)
        assert expected[902] == pytest.approx(expected[43], abs=1e-6)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    state = compact(tmp_path / "feedback", TableForm(like=1.0))
    assert state.rows == 0
    with running(tmp_path, f"main={link}") as server:
        assert scores(server) == pytest.approx(expected, abs=1e-6)
        swap(server, link, bundle_of("fm"))
        found = scores(server)
        assert found[902] == pytest.approx(found[43], abs=1e-6)
        assert set(found) == set(expected)
        swap(server, link, bundle_of("mf"))
        assert 902 not in scores(server)
        response = upsert(server, 902, LIKE_43)
        assert response.status_code == 422
        assert response.json()["error"].endswith("main: mf scores items by their ids, not by features")


def swap(server: Running, link: Path, bundle: Path) -> None:
    """Move the link to another bundle, and wait for it."""
    other = link.with_name("next")
    other.symlink_to(bundle)
    other.rename(link)
    server.process.send_signal(signal.SIGHUP)
    until(lambda: server.get("/bundles")["bundles"][0]["model"] == bundle.name)
