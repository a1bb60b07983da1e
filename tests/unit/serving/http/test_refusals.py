"""Invalid values, names and numbers: one sentence for each field, and nothing ignored silently."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from recsys_cli.serving.http.bodies import ScoreBody
from tests.servers import Running


@pytest.mark.parametrize(
    ("path", "body", "sentences"),
    [
        ("/recommend", {"user": [1]}, ["user: has to be a whole number or text or a number, not [1]"]),
        ("/recommend", {"user": 2**64}, ["user: has to be at most 9,223,372,036,854,775,807 or text or less than 9.0072e+15"]),
        ("/recommend", {"history": [1, {}, None]}, ["history.1: has to be a whole number or text"]),
        ("/recommend", {"k": "x", "diversity": 2}, ["k: has to be a whole number, not 'x'", "diversity: has to be at most 1"]),
        ("/recommend", {"features": {"year": {}}}, ["features.year: has to be true or false or a whole number"]),
        ("/recommend", {"usr": 1}, ["usr: unknown key (did you mean user?)"]),
        ("/recommend", {"zzz": 1}, ["zzz: unknown key; known: user, history"]),
        ("/recommend", [], ["the body is no JSON object"]),
        ("/recommend/batch", {"requests": [{}, {"k": 0}]}, ["requests.1.k: has to be at least 1, not 0"]),
        ("/score", {"rows": [{"userId": {}}]}, ["rows.0.userId: has to be"]),
        ("/feedback", {"events": [{"user": [1]}]}, ["events.0.user: has to be a whole", "events.0.item: is missing"]),
    ],
)  # fmt: skip
def test_each_invalid_field_has_one_sentence(path: str, body: Any, sentences: list[str], server: Running) -> None:
    response = server.ask("POST", path, body)
    assert response.status_code == 422
    error = response.json()["error"]
    for sentence in sentences:
        assert sentence in error
    assert error.count("; ") == sum("known:" in one for one in sentences) + len(sentences) - 1
    assert not any(word in error for word in ("constrained", "int]", "Input should", "str]"))


@pytest.mark.parametrize("wrong", ["true", "false", '"0.5"', "NaN", "Infinity", "1e400", "[1]", "{}"])
@pytest.mark.parametrize(
    ("path", "name", "body"),
    [
        ("/recommend", "diversity", '{"diversity": %s}'),
        ("/recommend", "k", '{"k": %s}'),
        ("/feedback", "events.0.label", '{"events": [{"user": 1, "item": 2, "label": %s}]}'),
        ("/feedback", "events.0.time", '{"events": [{"user": 1, "item": 2, "time": %s}]}'),
    ],
)
def test_a_number_is_a_finite_json_number(path: str, name: str, body: str, wrong: str, server: Running) -> None:
    response = server.ask("POST", path, content=body % wrong)
    assert response.status_code == 422, response.text
    assert response.json()["error"].startswith(f"{name}: ")


@pytest.mark.parametrize("number", ["9007199254740992.0", "9007199254740993.0", "1e16", "-1e16"])
def test_rounded_ids_are_refused(number: str, server: Running) -> None:
    content = '{"columns": {"userId": [1, 1], "movieId": [2, ' + number + "]}}"
    response = server.ask("POST", "/score", content=content)
    assert response.status_code == 422, response.text
    assert response.json()["error"].startswith("row 2, column movieId: ")
    assert response.json()["error"].endswith("a whole number is expected; floats of 2**53 or more are inexact")


def test_whole_numbers_of_rows_are_exact() -> None:
    numbers = [2**53 + 1, 2**63 + 1, 2**64 - 1, -(2**63)]
    body = ScoreBody.model_validate_json(json.dumps({"columns": {"id": numbers}}))
    assert body.columns == {"id": numbers}


@pytest.mark.parametrize(("name", "wrong"), [  # null is the bundle's own choice of seen items
    *product(["exclude_seen", "explain"], ["1", "0", '"yes"', '"true"']), ("explain", "null"),
])  # fmt: skip
def test_a_switch_is_true_or_false(name: str, wrong: str, server: Running) -> None:
    response = server.ask("POST", "/recommend", content=f'{{"{name}": {wrong}}}')
    assert response.status_code == 422, response.text
    assert response.json()["error"].startswith(f"{name}: has to be true or false, not ")


def test_numbers_of_many_digits_are_refused(server: Running) -> None:
    response = server.ask("POST", "/recommend", content=b'{"user": %s}' % (b"1" * 4_000))
    assert response.status_code == 422
    assert "user: has to be" in response.json()["error"]


def test_many_invalid_fields_are_counted(server: Running) -> None:
    error = server.ask("POST", "/recommend", {f"w{n}": n for n in range(100)}).json()["error"]
    assert error.endswith("and 92 more")
    assert len(error) < 1_100


_MOST = 299_990


@pytest.mark.parametrize(
    ("path", "content", "sentence"),
    [
        ("/score", b'{"columns": {"userId": [' + b"{}," * 1_300_000 + b"{}]}}", "above the limit of 300,000"),
        ("/recommend", b'{"history": [' + b"[]," * 1_300_000 + b"[]]}", "above the limit of 300,000"),
        ("/score", b'{"columns": {"userId": [' + b"{}," * _MOST + b"{}]}}", "columns.userId.0: has to be"),
        ("/score", b'{"rows": [' + b'{"a": {}},' * _MOST + b"{}]}", "rows.0.a: has to be"),
        ("/recommend", b'{"history": [' + b"[]," * _MOST + b"[]]}", "history.0: has to be"),
        ("/recommend", b"{" + b",".join(b'"k%d":1' % n for n in range(_MOST)) + b"}", "the body has 299,990 problems"),
        ("/recommend/batch", b'{"requests": [' + b"{}," * _MOST + b"{}]}", "at most 4096, and has 299991"),
        ("/score", b'{"columns": {' + b",".join(b'"k%d":[]' % n for n in range(1_001)) + b"}}", "and has 1001"),
        ("/feedback", b'{"events": [' + b'{"user":1},' * _MOST + b"{}]}", "events.0.item: is missing"),
        ("/v2/models/mf/infer", b'{"inputs": [' + b"[]," * 1_300_000 + b"[]]}", "above the limit of 300,000"),
        (
            "/v2/models/mf/infer",
            b'{"inputs": [{"name": "a", "datatype": "INT8", "shape": [' + b"2147483647," * _MOST + b"1]}]}",
            "invalid shape",
        ),
    ],
)
def test_a_large_invalid_body_is_refused_soon(path: str, content: bytes, sentence: str, server: Running) -> None:
    """A problem was made for each value: 90 s, and 9.6 GB."""
    response = server.ask("POST", path, content=content, timeout=10)
    assert response.status_code in {400, 422}, response.text
    assert sentence in response.json()["error"]
    assert len(response.text) < 1_000


@pytest.mark.parametrize("name", ["history", "candidates", "exclude"])
def test_lists_of_ids_are_bounded(name: str, server: Running) -> None:
    error = server.ask("POST", "/recommend", {name: [1] * 20_001}).json()["error"]
    assert error == f"{name}: allows at most 20000, and has 20001"


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("GET", "/items?serach=a", "search, k, bundle"),
        ("GET", "/users/3?limit=2", "k, bundle"),
        ("GET", "/users?limit=2", "k, bundle"),
        ("GET", "/similar/3?n=2", "k, bundle"),
        ("DELETE", "/feedback?user=1&itme=3", "user, item"),
        ("POST", "/recommend?k=3", None),
        ("GET", "/bundles?x", None),
        ("GET", "/v2/models/mf?x=1", "version"),
    ],
)
def test_unknown_query_parameters_are_refused(method: str, path: str, known: str | None, server: Running) -> None:
    response = server.ask(method, path, {} if method == "POST" else None)
    assert response.status_code == 422, response.text
    assert "unknown query parameter" in response.json()["error"]
    assert response.json()["hint"] == (f"the parameters are {known}" if known else "the route has no query parameters")


def test_every_invalid_parameter_is_named(server: Running) -> None:
    error = server.ask("GET", f"/items?k=x&search={'a' * 300}").json()["error"]
    assert "k: " in error
    assert "search: " in error


def test_unknown_features_are_refused_or_noted(server: Running) -> None:
    response = server.ask("POST", "/recommend", {"user": 1, "features": {"device": "tv"}, "bundle": "fm"})
    assert response.status_code == 422
    assert "device" in response.json()["error"]
    answer = server.post("/recommend", {"user": 1, "features": {"device": "tv"}, "bundle": "mf"})
    assert answer["items"]
    assert answer["note"] == "mf reads no features: device had no effect"


@pytest.mark.parametrize(
    "number", ["9223372036854775808", "-9223372036854775809", "1" * 400, "1e999", "-1e999", "year / 1e999"]
)
def test_numbers_out_of_range_in_filters_are_refused(number: str, server: Running) -> None:
    response = server.ask("POST", "/recommend", {"user": 1, "where": f"year > {number}"})
    assert response.status_code == 422
    assert "out of range" in response.json()["error"]


@pytest.mark.parametrize(
    "where",
    ["year + 9223372036854775807 > 0", "movieId * 9223372036854775807 * 9 > 1", "year(1e300) > 1", "year / 0 > 1",
     "length(title) > -1", "movieId == 1e308 * 10", "round(year) == 1e19", "log(0 - year) > 0", "-year - 9223372036854775807 < 0",
     "clip(year, 0, 1e18) > 1", "hour(9223372036854775807) == 1", "movieId > 1.0e18", "if(year > 1, 2, 3) == 2"],
)  # fmt: skip
def test_large_numbers_in_filters_are_no_errors_of_the_server(where: str, server: Running) -> None:
    for bundle in ("mf", "ease", "fm"):
        assert server.ask("POST", "/recommend", {"where": where, "bundle": bundle}).status_code in {200, 422}
