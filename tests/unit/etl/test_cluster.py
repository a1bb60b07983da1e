"""Tasks on a Dask cluster: order of results, errors, and lost workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.config import EtlConfig
from recsys_cli.cpu import Threads
from recsys_cli.errors import DataError, MissingExtraError, RecsysError
from recsys_cli.etl import engine as engines
from recsys_cli.etl.cluster import Cluster, Failure, SharedFolder, SharedTask, WorkerInfo, releases
from recsys_cli.etl.engine import open_executor
from recsys_cli.etl.polars_engine import PolarsEngine
from recsys_cli.events import Event, Message

needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed")


def raise_data_error(part: int) -> None:
    raise DataError(f"part {part} is odd", hint="fix it")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, list[Event]]]:
    """A cluster of two processes, and its events."""
    events: list[Event] = []
    scratch = tmp_path_factory.mktemp("scratch")
    with open_executor(
        EtlConfig(cluster="local", workers=2), PolarsEngine(scratch), scratch, events.append
    ) as executor:
        assert isinstance(executor, Cluster)
        yield executor, events


@needs_dask
def test_map_yields_results_in_order_of_parts(opened: Any) -> None:
    cluster, _ = opened
    assert list(cluster.map(abs, range(-20, 0))) == list(range(20, 0, -1))
    assert list(cluster.map(abs, [])) == []


@needs_dask
def test_map_bounds_parts_in_flight(opened: Any) -> None:
    cluster, _ = opened
    taken: list[int] = []
    parts = (taken.append(part) or part for part in range(100))
    results = cluster.map(abs, parts)
    assert next(results) == 0
    assert len(taken) <= 6
    results.close()


@needs_dask
def test_error_of_a_task_is_raised_unchanged(opened: Any) -> None:
    cluster, _ = opened
    with pytest.raises(ValueError, match=r"invalid literal for int.*'x'") as caught:
        list(cluster.map(int, ["1", "x", "2"]))
    assert "Traceback" in caught.value.__notes__[0]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        list(cluster.map(os.stat, ["nowhere"]))
    assert list(cluster.map(int, ["1"])) == [1]


@needs_dask
def test_polars_shares_the_cores_among_the_workers(opened: Any) -> None:
    cluster, _ = opened
    cores = len(os.sched_getaffinity(0))
    threads = os.environ.get("POLARS_MAX_THREADS", str(max(1, cores // 2)))
    assert list(cluster.map(os.environ.get, ["POLARS_MAX_THREADS"])) == [threads]


@needs_dask
def test_lost_workers_are_replaced_and_their_parts_repeated(opened: Any) -> None:
    cluster, events = opened
    results = cluster.map(abs, range(-30, 0))
    found = [next(results)]
    for process in cluster.client.run(os.getpid).values():
        os.kill(process, signal.SIGKILL)
    found += results

    assert found == list(range(30, 0, -1))
    gone = [event.text for event in events if isinstance(event, Message) and event.level == "warning"]
    assert len(gone) >= 2
    assert all("is lost; other workers repeat its parts" in text for text in gone)


@needs_dask
def test_part_that_kills_every_worker_is_an_error(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _ = opened
    monkeypatch.setattr(cluster.client.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(RecsysError, match="every worker that tried 3 died") as caught:
        list(cluster.map(os._exit, [3]))
    assert "etl.shard_rows" in str(caught.value.hint)


@needs_dask
def test_dask_logs_are_muted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with open_executor(EtlConfig(cluster="local", workers=1), PolarsEngine(tmp_path), tmp_path, print) as executor:
        assert list(executor.map(partial(pow, 2), range(3))) == [1, 2, 4]
        with pytest.raises(ValueError, match="invalid literal"):
            list(executor.map(int, ["x"]))
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


@pytest.mark.parametrize(
    ("cluster", "lacking", "extra"),
    [
        ("tcp://10.0.0.7:8786", "distributed", "dask"),
        ("local", "distributed", "dask"),
        ("local_cuda", "dask_cuda", "dask-cuda"),
    ],
)
def test_missing_dask_names_the_install_command(
    cluster: str, lacking: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == lacking else "there")
    engine = PolarsEngine(tmp_path)
    with (
        pytest.raises(MissingExtraError, match=f"etl.cluster={cluster} needs the '{extra}' extra") as caught,
        open_executor(EtlConfig(cluster=cluster), engine, tmp_path, print),
    ):
        pass
    assert caught.value.hint == f"pip install 'recsys-cli[{extra}]'"


def test_no_cluster_means_thread_pool(tmp_path: Path) -> None:
    with open_executor(EtlConfig(), PolarsEngine(tmp_path), tmp_path, print) as executor:
        assert isinstance(executor, Threads)
        assert executor.facts == {"cluster": None, "workers": 1, "threads": executor.count}


def test_recsys_error_keeps_class_message_and_hint(tmp_path: Path) -> None:
    found = SharedTask(raise_data_error, SharedFolder.at(tmp_path / "shared")).run(3)
    assert isinstance(found, Failure)
    assert isinstance(found.error, DataError)
    assert (found.error.message, found.error.hint) == ("part 3 is odd", "fix it")
    assert "raise_data_error" in found.error.__notes__[0]


def test_late_worker_checks_the_shared_folder(tmp_path: Path) -> None:
    found = SharedTask(abs, SharedFolder(tmp_path / "elsewhere", "token")).run(1)
    assert isinstance(found, Failure)
    assert isinstance(found.error, RecsysError)
    assert "cannot see the workspace" in found.error.message
    assert "mounts at the same path" in str(found.error.hint)


def test_all_problems_of_workers_are_listed(tmp_path: Path) -> None:
    shared = SharedFolder.at(tmp_path / "shared")
    lacks = MissingExtraError.for_extra("nvtabular", what="etl.engine=nvtabular")
    seen = {
        "tcp://a": WorkerInfo("ares", {**releases(), "polars": "0.1", "python": "3.9"}, None, None),
        "tcp://b": WorkerInfo("brontes", releases(), lacks, "[Errno 30] Read-only file system"),
        "tcp://c": ModuleNotFoundError("No module named 'recsys_cli'"),
        "tcp://d": WorkerInfo("dis", releases(), None, None),
    }
    first, second, third, fourth = shared.problems(seen)
    assert first.startswith("worker tcp://a on ares runs python 3.9, polars 0.1; this process runs python 3.")
    assert second == f"worker tcp://b on brontes: {lacks.message}"
    assert (
        third
        == f"worker tcp://b on brontes cannot use the scratch folder {shared.path}: [Errno 30] Read-only file system"
    )
    assert fourth == "worker tcp://c cannot run a task of recsys-cli: ModuleNotFoundError: No module named 'recsys_cli'"


def test_worker_with_another_folder_is_detected(tmp_path: Path) -> None:
    shared = SharedFolder.at(tmp_path / "shared")
    seen = {"tcp://a": shared.inspect(PolarsEngine(tmp_path)), "tcp://b": WorkerInfo("brontes", releases(), None, None)}
    (problem,) = shared.problems(seen)
    assert problem == f"files written by the workers to {shared.path} are not visible here"
    assert shared.problems({"tcp://a": seen["tcp://a"]}) == {}
