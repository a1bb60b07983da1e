"""An unchanged tritonclient against /v2, and the binary tensors of the protocol."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.http import inference as tensors
from recsys_cli.serving.http.problems import RequestError
from recsys_cli.serving.query import Query
from tests.servers import Running

tritonclient = pytest.importorskip("tritonclient.http")


@pytest.fixture
def client(server: Running) -> Iterator[Any]:
    client = tritonclient.InferenceServerClient(server.url.removeprefix("http://"))
    yield client
    client.close()


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("mf")
    assert not client.is_model_ready("typo")
    assert client.get_server_metadata()["name"] == "recsys"
    metadata = client.get_model_metadata("mf")
    assert {one["name"]: one["datatype"] for one in metadata["inputs"]} == {"userId": "INT64", "movieId": "INT64"}
    index = client.get_model_repository_index()
    assert {one["name"] for one in index} == {f"{name}{end}" for name in ("mf", "ease", "fm") for end in ("", "-topk")}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_scores_of_raw_rows(client: Any, bundle_of: Callable[..., Any], binary: bool, shape: tuple[int, ...]) -> None:
    columns = {"userId": [1, 2, 3], "movieId": [4, 5, 6]}
    inputs = []
    for name, values in columns.items():
        inputs.append(tritonclient.InferInput(name, list(shape), "INT64"))
        inputs[-1].set_data_from_numpy(np.array(values).reshape(shape), binary_data=binary)
    outputs = [tritonclient.InferRequestedOutput("score", binary_data=binary)]
    for wanted in (outputs, None):
        result = client.infer("mf", inputs, outputs=wanted, request_id="7")
        assert result.get_response()["id"] == "7"
        assert result.as_numpy("score").tolist() == load_bundle(bundle_of("mf")).score(columns).tolist()


@pytest.mark.parametrize("binary", [True, False])
def test_top_k_of_users_and_histories(client: Any, bundle_of: Callable[..., Any], binary: bool) -> None:
    user = tritonclient.InferInput("user", [2], "BYTES")
    user.set_data_from_numpy(np.array(["3", "nobody"], object), binary_data=binary)
    history = tritonclient.InferInput("history", [2], "BYTES")
    history.set_data_from_numpy(np.array(["[1, 3]", "[5]"], object), binary_data=binary)
    k = tritonclient.InferInput("k", [1], "INT32")
    k.set_data_from_numpy(np.array([4], np.int32), binary_data=binary)
    result = client.infer("ease-topk", [user, history, k])
    expected = load_bundle(bundle_of("ease")).recommend([Query(history=[1, 3], k=4), Query(history=[5], k=4)])
    items = result.as_numpy("item")
    assert items.shape == (2, 4)
    assert [[int(one) for one in row] for row in items] == [[one.item.id for one in a.items] for a in expected]
    assert result.as_numpy("score")[0].tolist() == pytest.approx([one.score for one in expected[0].items])
    assert result.as_numpy("length").tolist() == [4, 4]
    assert result.as_numpy("source").tolist() == [b"fold-in"] * 2


@pytest.mark.parametrize(
    "request_",
    [
        {}, {"inputs": {}}, {"inputs": [1]}, {"inputs": [{"name": "userId", "datatype": "INT64", "shape": [2], "data": [1]}]},
        {"inputs": [{"name": "userId", "datatype": "X", "shape": [1], "data": [1]}]},
        {"inputs": [{"name": "userId", "datatype": "INT64", "shape": [-1], "data": [1]}]},
        {"inputs": [{"name": "userId", "datatype": "INT64", "shape": [1], "data": ["x"]}]},
        {"inputs": [{"name": "userId", "datatype": "INT64", "shape": [1], "parameters": {"binary_data_size": 8}}]},
        {"inputs": [{"name": "userId", "datatype": "INT64", "shape": [1], "data": [1]}]},
        {"inputs": [{"name": "typo", "datatype": "INT64", "shape": [1], "data": [1]}]},
        {"inputs": [], "outputs": [{"name": "typo"}]},
    ],
)  # fmt: skip
def test_malformed_requests(server: Running, request_: Any) -> None:
    response = server.ask("POST", "/v2/models/mf/infer", request_)
    assert response.status_code in {400, 422}, response.text
    assert server.ask("POST", "/v2/models/mf-topk/infer", request_).status_code in {400, 422}


@given(content=st.binary(max_size=200), length=st.none() | st.text(max_size=5) | st.integers(0, 300).map(str))
def test_no_body_breaks_the_parser(content: bytes, length: str | None) -> None:
    head = b'{"inputs": [{"name": "a", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 20}}]}'
    for body, own in ((content, length), (head + content, str(len(head)))):
        with suppress(RequestError):
            _, found = tensors.parse(body, own)
            assert all(len(one.values) == math.prod(one.shape) for one in found)


@given(values=st.lists(st.text(max_size=10)))
def test_texts_survive_binary_data(values: list[str]) -> None:
    data = tensors.binary(values, "BYTES")
    head = (
        f'{{"inputs": [{{"name": "a", "datatype": "BYTES", "shape": [{len(values)}], '
        f'"parameters": {{"binary_data_size": {len(data)}}}}}]}}'
    ).encode()
    _, [tensor] = tensors.parse(head + data, str(len(head)))
    assert list(tensor.values) == values


def test_a_length_of_many_digits_is_malformed(server: Running) -> None:
    headers = {"Inference-Header-Content-Length": "9" * 5_000}
    response = server.ask("POST", "/v2/models/mf-topk/infer", {"inputs": []}, headers=headers)
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("k", "status", "lengths"),
    [([2, 4], 200, [2, 4]), ([3], 200, [3, 3]), ([1, 2, 3], 400, None), ([1.5], 400, None), ([None], 400, None)],
)
def test_k_is_one_number_or_one_of_each_row(
    server: Running, k: list[object], status: int, lengths: list[int] | None
) -> None:
    users = {"name": "user", "datatype": "BYTES", "shape": [2], "data": ["1", "2"]}
    numbers = {"name": "k", "datatype": "INT32", "shape": [len(k)], "data": k}
    response = server.ask("POST", "/v2/models/mf-topk/infer", {"inputs": [users, numbers]})
    assert response.status_code == status
    if lengths:
        outputs = {output["name"]: output["data"] for output in response.json()["outputs"]}
        assert outputs["length"] == lengths
