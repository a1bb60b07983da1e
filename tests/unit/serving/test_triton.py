"""Exported model repositories on a real Triton server, asked through tritonclient over HTTP and gRPC."""

from __future__ import annotations

import shutil
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

import recsys_cli as recsys
from recsys_cli.errors import RecsysError
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.export.triton.repository import RepositoryRows
from recsys_cli.serving.query import Answer, Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.export import export
from recsys_cli.workspace.artifacts import TritonRepository
from tests.served_runs import MakeRun, ratings
from tests.triton_server import TritonServer, triton_server

pytest.importorskip("tritonclient")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of gevent and grpc on import
    import tritonclient.grpc
    import tritonclient.http

pytestmark = [pytest.mark.slow, pytest.mark.numpy1]
Tensors = Mapping[str, np.ndarray]
TYPES = {"i": "INT64", "O": "BYTES", "b": "BOOL"}
FLOATS = {4: "FP32", 8: "FP64"}
CITIES, TAGS = ("Bonn", "Köln", "", None), (["a", "b"], [], None, ["c", None, "a"])


class Client:
    """A client over HTTP or gRPC."""

    def __init__(self, protocol: ModuleType, address: str) -> None:
        self._protocol, self.client = protocol, protocol.InferenceServerClient(address)

    def __call__(self, model: str, given: Tensors) -> dict[str, np.ndarray]:
        inputs = []
        for name, values in given.items():
            kind = TYPES.get(values.dtype.kind) or FLOATS[values.dtype.itemsize]
            inputs.append(self._protocol.InferInput(name, values.shape, kind))
            inputs[-1].set_data_from_numpy(values)
        result = self.client.infer(model, inputs)
        response = result.get_response()
        outputs = response["outputs"] if isinstance(response, dict) else response.outputs
        names = [one["name"] if isinstance(one, dict) else one.name for one in outputs]
        return {name: result.as_numpy(name) for name in names}


@pytest.fixture(scope="module")
def repositories(
    make_run: MakeRun, served_workspace: recsys.Workspace, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """Exported repositories by name, moved after the export."""
    written, moved = tmp_path_factory.mktemp("written"), tmp_path_factory.mktemp("moved")
    for name, run in (("movies", make_run("ease")), ("shop", shop_run(served_workspace))):
        made = export(run, served_workspace, kind="triton", out=written / name)
        assert made.verified
        shutil.move(written / name, moved / name)
    return {name: moved / name for name in ("movies", "shop")}


@pytest.fixture(scope="module")
def server(repositories: Mapping[str, Path]) -> Iterator[TritonServer]:
    shop = f"--model-repository={repositories['shop']}"
    with triton_server(repositories["movies"], more=[shop], seconds=300) as started:
        yield started


@pytest.fixture(scope="module", params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: TritonServer) -> Iterator[Client]:
    made = client_of(request.param, server)
    yield made
    made.client.close()


@pytest.fixture(scope="module")
def movies(repositories: Mapping[str, Path]) -> Recommender:
    return load_bundle(TritonRepository(repositories["movies"]).bundle.folder)


def client_of(protocol: str, server: TritonServer) -> Client:
    if protocol == "http":
        return Client(tritonclient.http, f"127.0.0.1:{server.http}")
    return Client(tritonclient.grpc, f"127.0.0.1:{server.grpc}")


def shop_run(workspace: recsys.Workspace) -> recsys.TrainedRun:
    """Train on rows with texts, lists and numbers, and nulls in all of them; users have text ids."""
    frame = ratings().with_columns(
        userId=pl.format("u{}", "userId"),
        city=pl.Series([CITIES[row % 4] for row in range(1_500)]),
        tags=pl.Series([TAGS[row % 4] for row in range(1_500)]),
        price=pl.Series([None if row % 7 == 0 else row % 10 / 3 for row in range(1_500)]),
        stock=pl.Series([None if row % 5 == 0 else row % 3 for row in range(1_500)]),
    )
    train = {"epochs": 1, "batch_size": 256, "device": "cpu"}
    config = recsys.config_from_frame(
        frame, workspace, user="userId", item="movieId", rating="rating", timestamp="timestamp", model="fm", train=train
    )
    values = config.model_dump()
    ids = {"op": "Categorify", "columns": ["userId", "movieId", "city", "tags", "stock"]}
    numbers = [{"op": "FillMissing", "columns": ["price"]}, {"op": "Normalize", "columns": ["price"]}]
    values["features"]["ops"] = [ids, *numbers, *values["features"]["ops"][1:]]
    config = recsys.load_config(values)
    recsys.etl(config, workspace, progress=False)
    return recsys.train(config, workspace, progress=False)


def shop_rows(count: int) -> dict[str, list[Any]]:
    rows = range(count)
    return {
        "userId": [f"u{row % 70}" for row in rows],  # some of them unknown
        "movieId": [row % 50 for row in rows],
        "city": [(*CITIES, "Ulm")[row % 5] for row in rows],
        "tags": [TAGS[row % 4] for row in rows],
        "price": [None if row % 3 == 0 else row / 7 for row in rows],
        "stock": [None if row % 2 == 0 else row % 4 for row in rows],
    }


def check(actual: Mapping[str, np.ndarray], expected: Sequence[Answer]) -> None:
    for row, answer in enumerate(expected):
        num = int(actual["length"][row, 0])
        assert num == len(answer.items)
        assert actual["item"][row, :num].tolist() == [one.item.id for one in answer.items]
        assert [title.decode() for title in actual["title"][row, :num]] == [one.item.title for one in answer.items]
        assert actual["score"][row, :num].tolist() == [one.score for one in answer.items]
        assert actual["source"][row, 0].decode() == answer.source
        assert actual["note"][row, 0].decode() == (answer.note or "")


def column(*values: Any) -> np.ndarray:
    return np.array(values).reshape(-1, 1)


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_scores_are_those_of_the_bundle(client: Client, repositories: Mapping[str, Path], rows: int) -> None:
    scorer, raw = RepositoryRows(repositories["shop"]), shop_rows(rows)
    expected = load_bundle(TritonRepository(repositories["shop"]).bundle.folder).score(raw)
    assert client("shop_score", scorer.request(raw))["score"].ravel().tolist() == expected.tolist()


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_scores_of_a_model_with_fold_in_are_those_of_the_bundle(client: Client, movies: Recommender, rows: int) -> None:
    raw = {"userId": [1 + row % 60 for row in range(rows)], "movieId": [1 + row % 40 for row in range(rows)]}
    given = {name: column(*values) for name, values in raw.items()}
    assert client("movies_score", given)["score"].ravel().tolist() == movies.score(raw).tolist()


def test_recommendations_are_those_of_the_bundle(client: Client, movies: Recommender) -> None:
    users = list(range(1, 61))
    given = {"user": column(*users), "k": column(*([5] * 60))}
    check(client("movies_recommend", given), movies.recommend([Query(user=user, k=5) for user in users]))


def test_histories_filters_and_unknown_users(client: Client, movies: Recommender) -> None:
    given = {
        "user": column(99_999, 7, 8),
        "user.null": column(False, False, True),
        "history": np.array([[0, 0], [1, 0], [3, 5]]),
        "history.length": column(-1, 1, 2),
        "where": np.array([[b""], [b"genres contains Comedy"], [b""]], object),
        "where.null": column(True, False, True),
    }
    queries = [Query(user=99_999), Query(user=7, history=[1], where="genres contains Comedy"), Query(history=[3, 5])]
    answers = movies.recommend(queries)
    assert [answer.source for answer in answers] == ["popularity", "fold-in", "fold-in"]
    check(client("movies_recommend", given), answers)


def test_users_with_text_ids_have_recommendations(client: Client, repositories: Mapping[str, Path]) -> None:
    given = {"user": np.array([[b"u1"], [b"nobody"]], object), "candidates": np.array([[1, 2, 3], [1, 2, 3]])}
    shop = load_bundle(TritonRepository(repositories["shop"]).bundle.folder)
    actual = client("shop_recommend", given)
    expected = shop.recommend([Query(user=user, candidates=[1, 2, 3]) for user in ("u1", "nobody")])
    for row, answer in enumerate(expected):
        assert actual["item"][row, : actual["length"][row, 0]].tolist() == [one.item.id for one in answer.items]
        assert actual["note"][row, 0].decode() == (answer.note or "")


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        ("movies_recommend", {"k": column(0)}, "k is 0, but has to be 1 or more"),
        ("movies_recommend", {"user": column(1.5)}, "data-type is 'FP64', but .* expects 'INT64'"),
        ("movies_recommend", {"users": column(1)}, "unexpected inference input 'users'"),
        ("movies_recommend", {"history": np.array([[1]]), "history.length": column(2)}, "history.length has 2"),
        ("movies_score", {"userId": column(1)}, "missing required input"),
        ("shop_score", {"userId": column(1), "movieId": column(1)}, "expects '(BYTES|STRING)'"),
    ],
)
def test_wrong_requests_have_clear_errors(client: Client, model: str, given: Tensors, message: str) -> None:
    with pytest.raises(Exception, match=message):
        client(model, given)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_errors_leave_the_other_requests_of_a_batch(server: TritonServer, movies: Recommender, protocol: str) -> None:
    expected = movies.recommend([Query(user=user, k=3) for user in range(1, 21)])

    def ask(start: int) -> list[str]:
        client, outcomes = client_of(protocol, server), []
        for user in range(start, 21, 8):
            check(client("movies_recommend", {"user": column(user), "k": column(3)}), [expected[user - 1]])
            try:
                client("movies_recommend", {"user": column(user), "k": column(-1)})
            except Exception as error:
                outcomes.append(str(error))
        client.client.close()
        return outcomes

    with ThreadPoolExecutor(8) as pool:
        errors = [error for part in pool.map(ask, range(1, 9)) for error in part]
    assert len(errors) == 20
    assert all("k is -1" in error for error in errors)


def test_a_damaged_bundle_ends_the_server_with_its_error(repositories: Mapping[str, Path], tmp_path: Path) -> None:
    damaged = tmp_path / "movies"
    shutil.copytree(repositories["movies"], damaged)
    (damaged / "movies_score" / "bundle" / "weights.safetensors").write_bytes(b"")
    with pytest.raises(RecsysError, match=r"weights\.safetensors"), triton_server(damaged, seconds=300):
        pass


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(RecsysError, match=f"{port}: Address already in use"), triton_server(tmp_path, http=port):
            pass
