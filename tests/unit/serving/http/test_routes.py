"""Answers over HTTP: those of the recommender, and never a 500."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.feedback.log import replay, worker_file
from recsys_cli.serving.feedback.state import Event, FeedbackState
from recsys_cli.serving.http import bodies
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.service import FeedbackDesk
from recsys_cli.serving.http.settings import Settings
from recsys_cli.serving.query import Query
from tests.servers import Running, running


@pytest.mark.parametrize("bundle", ["mf", "ease"])
def test_answers_are_those_of_the_recommender(server: Running, bundle_of: Callable[..., Any], bundle: str) -> None:
    model = load_bundle(bundle_of(bundle))
    for body in ({"user": 7, "k": 5}, {"history": [1, 3, 5], "k": 4}, {"user": 9, "candidates": [1, 2, 3, 44]}):
        answer = server.post("/recommend", {**body, "bundle": bundle})
        expected = model.recommend([Query(**body)])[0]
        assert [(one["item"], one["score"]) for one in answer["items"]] == [
            (one.item.id, one.score) for one in expected.items
        ]
        assert (answer["source"], answer["note"], answer["bundle"]) == (expected.source, expected.note, bundle)


@pytest.mark.parametrize(
    ("body", "source", "note"),
    [
        ({"user": "nobody"}, "popularity", "user nobody has no history"),
        ({"user": 10**18}, "popularity", f"user {10**18} has no history"),
        ({}, "popularity", "anonymous"),
        ({"user": 1, "history": []}, "popularity", "no history"),
        ({"user": 1, "history": ["nothing", 99]}, "popularity", "unknown"),
        ({"user": 1, "where": "year > 3000"}, "none", "filters"),
        ({"user": 1, "candidates": []}, "none", "filters"),
        ({"user": 1, "history": list(range(1, 46))}, "none", "all items are seen"),
    ],
)
def test_every_fallback_is_declared(server: Running, body: dict[str, Any], source: str, note: str) -> None:
    answer = server.post("/recommend", {"bundle": "ease", **body})
    assert answer["source"] == source
    assert answer["fallback"] == ("popularity" if source == "popularity" else None)
    assert note in answer["note"]
    assert bool(answer["items"]) == (source != "none")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/recommend", {"user": 1, "k": 0}, 422),
        ("/recommend", {"user": 1, "k": 10**9}, 422),
        ("/recommend", {"user": {}}, 422),
        ("/recommend", {"where": "no such thing ("}, 422),
        ("/recommend", {"where": "x > 1"}, 422),
        ("/recommend", {"typo": 1}, 422),
        ("/recommend", {"bundle": "typo"}, 404),
        ("/recommend", {"features": {"typo": 1}, "bundle": "fm"}, 422),
        ("/recommend", {"history": list(range(30_000))}, 422),
        ("/recommend/batch", {"requests": [{}] * 1_000}, 422),
        ("/score", {}, 422),
        ("/score", {"rows": [{"userId": 1}]}, 422),
        ("/score", {"rows": [{"userId": 1}, {"movieId": 1}]}, 422),
        ("/score", {"columns": {"userId": [1], "movieId": []}}, 422),
        ("/score", {"rows": [{"userId": 1, "movieId": "x"}], "bundle": "fm"}, 422),
        ("/feedback", {"events": []}, 422),
        ("/typo", {}, 404),
    ],
)
def test_invalid_requests_have_a_reason_and_a_hint(server: Running, path: str, body: Any, status: int) -> None:
    response = server.ask("POST", path, body)
    assert response.status_code == (405 if path == "/typo" else status), response.text
    assert set(response.json()) == {"error", "hint"}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"user": "\\ud800"}', b"null", b'{"k": NaN}']
)
def test_malformed_bodies(server: Running, content: bytes) -> None:
    allowed = {400} if len(content) < 2 else {400, 422}
    for path in ("/recommend", "/score", "/feedback", "/v2/models/mf/infer"):
        response = server.ask("POST", path, content=content)
        assert response.status_code in allowed, (path, response.text)


def test_large_and_compressed_bodies_are_refused(server: Running) -> None:
    assert server.ask("POST", "/recommend", content=b"x" * (5 << 20)).status_code == 413
    chunks = (b"x" * (1 << 20) for _ in range(6))
    assert server.ask("POST", "/recommend", content=chunks).status_code == 413
    headers = {"Content-Encoding": "gzip"}
    assert server.ask("POST", "/recommend", content=b"x", headers=headers).status_code == 415


def test_feedback_changes_the_next_answer(server: Running) -> None:
    first = server.recommended(11, bundle="mf")
    event = {"user": 11, "item": first[0]}
    assert server.post("/feedback", {"events": [event]}) == {
        "written": 1, "unchanged": 0, "unknown_items": 0, "fsync": "always",
    }  # fmt: skip
    assert server.post("/feedback", {"events": [event]})["unchanged"] == 1
    assert server.recommended(11, bundle="mf") == first[1:]
    assert server.recommended("11", bundle="mf") == first[1:]
    assert server.ask("PUT", "/feedback", {"events": [{**event, "label": 0}]}).json()["written"] == 1
    newest = server.get("/users/11")["history"][0]
    assert (newest["item"], newest["label"], newest["feedback"]) == (first[0], 0.0, True)
    server.ask("PUT", "/feedback", {"events": [{**event, "label": 0, "time": 1.0}]})
    assert server.get("/users/11?k=100")["history"][-1]["item"] == first[0]
    deletions = ["user=11&item=-5", "user=11", "user=11", f"user=11&item={first[0]}"]
    answers = [server.ask("DELETE", f"/feedback?{one}").json() for one in deletions]
    assert [(one["written"], one["unchanged"]) for one in answers] == [(0, 1), (1, 0), (0, 1), (0, 1)]
    assert server.recommended(11, bundle="mf") == first


def test_feedback_is_history_for_models_that_fold_in(server: Running, bundle_of: Callable[..., Any]) -> None:
    answer = server.post("/recommend", {"user": 9001, "bundle": "ease"})
    assert answer["source"] == "popularity"
    server.post("/feedback", {"events": [{"user": 9001, "item": item} for item in (1, 3, 5)]})
    answer = server.post("/recommend", {"user": 9001, "bundle": "ease", "k": 4})
    expected = load_bundle(bundle_of("ease")).recommend([Query(history=[1, 3, 5], k=4)])[0]
    assert answer["source"] == "fold-in"
    assert [one["score"] for one in answer["items"]] == [one.score for one in expected.items]
    server.ask("DELETE", "/feedback?user=9001")
    assert server.post("/recommend", {"user": 9001, "bundle": "ease"})["source"] == "popularity"


def test_likes_without_a_label_are_positive_above_any_bound(tmp_path: Path, bundle_of: Callable[..., Any]) -> None:
    with running(tmp_path, str(bundle_of("ease")), "--positive-above", "3") as server:
        events = [
            {"user": 9002, "item": 1},
            {"user": 9002, "item": 3, "label": 4},
            {"user": 9002, "item": 5, "label": 1},
        ]
        server.post("/feedback", {"events": events})
        assert {one["item"]: one["label"] for one in server.get("/users/9002")["history"]} == {1: None, 3: 1.0, 5: 0.0}
    state = FeedbackState()
    replay(worker_file(server.feedback, 0), state)
    assert [event.label for event in state.of_user(9002)] == [None, 4.0, 1.0]


def test_items_outside_the_catalog_are_counted(server: Running) -> None:
    events = [{"user": 9003, "item": item} for item in (777, "1", 2, "777", 10**15)]
    for method in ("POST", "PUT"):
        assert server.ask(method, "/feedback", {"events": events}).json()["unknown_items"] == 2
    assert server.ask("DELETE", "/feedback?user=9003").json()["unknown_items"] == 0
    assert server.ask("PUT", "/items/typo", {"hidden": False}).status_code == 422
    for item, number in (("999999", 1), ("3", 0)):
        answer = server.ask("PUT", f"/items/{item}", {"hidden": False}).json()
        assert (answer["written"], answer["unknown_items"]) == (1, number)


def test_the_unit_of_times_is_in_the_error(server: Running) -> None:
    for time in (1_700_000_000_000, 1.7e18, 10**400):
        response = server.ask("POST", "/feedback", {"events": [{"user": 1, "item": 2, "time": time}]})
        assert response.status_code == 422
        assert "events.0.time" in response.json()["error"]
        assert "seconds since 1970" in response.json()["error"]


def test_a_time_is_a_number(server: Running) -> None:
    for time, code in ((True, 422), (False, 422), ("5", 422), (5, 200), (5.5, 200), (None, 200)):
        for method in ("POST", "PUT"):
            response = server.ask(method, "/feedback", {"events": [{"user": 9004, "item": 2, "time": time}]})
            assert response.status_code == code, (method, time)
            assert code == 200 or "events.0.time" in response.json()["error"]


def test_hidden_items_are_in_no_answer(server: Running) -> None:
    first = server.recommended(12, bundle="mf")
    assert server.ask("PUT", f"/items/{first[0]}", {"hidden": True}).status_code == 200
    assert server.recommended(12, bundle="mf") == first[1:]
    assert server.get(f"/items/{first[0]}")["hidden"]
    assert first[0] not in [one["item"] for one in server.get(f"/similar/{first[1]}?k=50&bundle=mf")["items"]]
    server.ask("PUT", f"/items/{first[0]}", {"hidden": False})
    assert server.recommended(12, bundle="mf") == first


def test_lookups(server: Running) -> None:
    found = server.get("/items?search=movie 0&k=3")["items"]
    assert [one["title"][:7] for one in found] == ["Movie 0"] * 3
    assert server.get("/items/3")["title"] == "Movie 03"
    assert server.ask("GET", "/items/typo").status_code == 404
    assert server.get("/users/nobody")["known"] is False
    assert len(server.get("/users/1?k=3")["history"]) == 3
    assert server.get("/similar/typo")["note"] == "item typo is unknown"
    assert server.ask("GET", "/similar/3?k=0").status_code == 422
    assert "<html" in server.ask("GET", "/").text
    assert server.ask("GET", "/../server.py").status_code == 404
    assert {one["name"] for one in server.get("/bundles")["bundles"]} == {"mf", "ease", "fm"}


def test_scores_are_those_of_the_recommender(server: Running, bundle_of: Callable[..., Any]) -> None:
    columns = {"userId": [1, 2, 999, None], "movieId": [3, 44, 5, None]}
    scores = server.post("/score", {"columns": columns, "bundle": "fm"})["scores"]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert server.post("/score", {"rows": rows, "bundle": "fm"})["scores"] == scores
    assert scores == load_bundle(bundle_of("fm")).score(columns).tolist()


def test_rows_of_requests_at_once_are_scored_by_themselves(server: Running, bundle_of: Callable[..., Any]) -> None:
    expected = load_bundle(bundle_of("fm")).score({"userId": list(range(1, 41)), "movieId": [3] * 40}).tolist()

    def score(user: int) -> httpx.Response:
        row = {"userId": user, "movieId": "x" if user == 13 else 3}
        return server.ask("POST", "/score", {"rows": [row], "bundle": "fm"})

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(score, range(1, 41)))
    assert [user for user, answer in enumerate(answers, 1) if answer.status_code != 200] == [13]
    for user, answer in enumerate(answers, 1):
        if user != 13:
            assert answer.json()["scores"] == pytest.approx([expected[user - 1]], abs=1e-5)


HISTORICAL = ("ease", "ials", "sasrec", "din", "two-stage")


@pytest.fixture(scope="module")
def historical(bundle_of: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a model of each kind that reads histories."""
    with running(tmp_path_factory.mktemp("historical"), *(str(bundle_of(model)) for model in HISTORICAL)) as server:
        yield server


@pytest.mark.parametrize("model", HISTORICAL)
@pytest.mark.parametrize("user", [7, 9100])
def test_scores_know_the_feedback_that_recommendations_know(historical: Running, model: str, user: int) -> None:
    def recommended() -> dict[int, float]:
        body = {"user": user, "k": 45, "exclude_seen": False, "bundle": model}
        return {one["item"]: one["score"] for one in historical.post("/recommend", body)["items"]}

    def score(items: Iterable[int], spelling: Any) -> list[float]:
        rows = [{"userId": spelling, "movieId": item} for item in items]
        found: list[float] = historical.post("/score", {"rows": [*rows, {"userId": 8, "movieId": 1}], "bundle": model})[
            "scores"
        ]
        other = historical.post("/score", {"rows": [{"userId": 8, "movieId": 1}], "bundle": model})["scores"]
        assert found[-1:] == pytest.approx(other, abs=1e-5)
        return found[:-1]

    before = score(range(1, 41), user)
    historical.post("/feedback", {"events": [{"user": user, "item": item, "label": 5} for item in (2, 9, 14)]})
    expected = recommended()
    assert score(range(1, 41), user) != pytest.approx(before, abs=1e-5)
    for spelling in (user, str(user)):
        assert score(expected, spelling) == pytest.approx(list(expected.values()), abs=1e-5)
    assert historical.ask("DELETE", f"/feedback?user={user}").status_code == 200
    assert score(range(1, 41), user) == pytest.approx(before, abs=1e-5)


def test_shares_are_stable_by_user_and_other_bundles_answer_nobody(server: Running) -> None:
    bundles = {user: server.post("/recommend", {"user": user})["bundle"] for user in range(60)}
    assert set(bundles.values()) == {"mf", "ease"}
    assert 15 <= sum(bundle == "mf" for bundle in bundles.values()) <= 45
    assert bundles == {user: server.post("/recommend", {"user": str(user)})["bundle"] for user in range(60)}
    metrics = server.ask("GET", "/metrics").text
    assert 'recsys_requests_total{route="/recommend",status="200"}' in metrics


def test_a_history_without_effect_names_the_bundles_that_fold_in(server: Running) -> None:
    answers = {}
    for item in range(1, 41):
        answer = server.post("/recommend", {"history": [item], "k": 3})
        answers[answer["bundle"]] = answer
    assert answers["mf"]["source"] == "popularity"
    assert answers["mf"]["note"].endswith("; with ease as the bundle of the request, the history counts")
    assert answers["ease"]["note"] is None
    nothing = server.post("/recommend", {"history": ["nothing"]})
    assert "counts" not in nothing["note"]


def test_pages_of_other_sites_may_not_ask(server: Running) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
        assert server.ask("POST", "/recommend", {}, headers=headers).status_code == 403
    assert server.ask("POST", "/recommend", {}, headers={"Origin": server.url}).status_code == 200


@pytest.mark.parametrize("event", [{"user": "x", "item": 3}, {"user": 4, "item": "y"}, {"user": "4\0", "item": 3}])
def test_feedback_with_an_id_of_another_type_is_refused(server: Running, event: dict[str, Any]) -> None:
    response = server.ask("POST", "/feedback", {"events": [event]})
    assert response.status_code == 422
    assert "is no id of this data" in response.json()["error"]


@pytest.mark.parametrize("spelling", ["032", " 32", "32.0"])
def test_any_spelling_of_a_user_deletes_and_finds_the_feedback(server: Running, spelling: str) -> None:
    number = len(server.get("/users/32")["history"])
    server.post("/feedback", {"events": [{"user": 32.0, "item": 7.0}]})
    for user in ("32", spelling):
        assert server.get(f"/users/{user}")["history"][0] | {"title": 0} == {
            "item": 7, "title": 0, "label": None, "feedback": True,
        }  # fmt: skip
    answers = [server.post("/recommend", {"user": one, "k": 5}) for one in (32, spelling, 32.0)]
    assert answers[0] == answers[1] == answers[2]
    server.ask("DELETE", "/feedback", params={"user": spelling, "item": "07"})
    assert len(server.get("/users/32")["history"]) == number
    assert server.get(f"/users/{spelling}")["history"] == server.get("/users/32")["history"]


def test_an_id_that_no_row_can_have_is_not_deleted(server: Running) -> None:
    for query in ("user=x", "user=4&item=y"):
        assert server.ask("DELETE", f"/feedback?{query}").status_code == 422


def test_labels_above_a_bound_are_positive_for_binary_labels_only(tmp_path: Path) -> None:
    settings = Settings({}, {}, feedback=tmp_path, positive_above=3.0)
    desk = FeedbackDesk(settings, 0, Metrics(), upserted=lambda: None)
    for at, label in ((1, 2.5), (2, 4.5)):
        desk.state.apply(Event("put", at, 7, at, label, float(at)))
    assert [one.label for one in desk.recent(7, is_binary=False)] == [2.5, 4.5]
    assert [one.label for one in desk.recent(7, is_binary=True)] == [0.0, 1.0]
    asyncio.run(desk.close())


def test_docs_lead_to_the_description_with_a_valid_example_of_every_body(server: Running) -> None:
    document = server.get("/docs", follow_redirects=True)
    shown = set()
    for one in (one for methods in document["paths"].values() for one in methods.values()):
        schema = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        if name := schema.get("$ref", "").rpartition("/")[2]:
            getattr(bodies, name).model_validate(document["components"]["schemas"][name]["example"])
            shown.add(name)
    assert shown == {"RecommendBody", "BatchBody", "ScoreBody", "FeedbackBody", "ItemBody", "ItemsBody"}
