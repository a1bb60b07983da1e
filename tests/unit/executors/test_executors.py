"""Checks of workers, and executors by the name of a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recsys_cli.cpu import Threads
from recsys_cli.errors import DataError, MissingExtraError, RecsysError
from recsys_cli.executors import address, cluster
from recsys_cli.executors.checks import Checks, SharedFolder, WorkerInfo, releases
from recsys_cli.executors.cluster import Failure, SharedTask
from recsys_cli.executors.executor import open_executor

PACKAGES = ("polars", "distributed")


def raise_data_error(part: int) -> None:
    raise DataError(f"part {part} is odd", hint="fix it")


def here(host: str, folder_error: str | None = None, missing: MissingExtraError | None = None) -> WorkerInfo:
    return WorkerInfo(host, releases(PACKAGES), missing, folder_error)


@pytest.mark.parametrize(
    ("name", "lacking", "extra"),
    [
        ("tcp://10.0.0.7:8786", "distributed", "dask"),
        ("dask://10.0.0.7:8786", "distributed", "dask"),
        ("local", "distributed", "dask"),
        ("local_cuda", "dask_cuda", "dask-cuda"),
        ("ray", "ray", "ray"),
        ("ray://10.0.0.7:10001", "ray", "ray"),
    ],
)
def test_missing_package_names_the_install_command(
    name: str, lacking: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "find_spec", lambda name: None if name == lacking else "there")
    with (
        pytest.raises(MissingExtraError, match=f"etl.cluster={name} needs the '{extra}' extra") as caught,
        open_executor(name, tmp_path),
    ):
        pass
    assert caught.value.hint == f"pip install 'recsys-cli[{extra}]'"


def test_no_cluster_means_thread_pool(tmp_path: Path) -> None:
    with open_executor(None, tmp_path) as executor:
        assert isinstance(executor, Threads)
        assert executor.facts == {"cluster": None, "workers": 1, "threads": executor.count}


@pytest.mark.parametrize("seconds", [0.0, 59.0, 600.0])
def test_auto_stays_here_without_a_named_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with open_executor("auto", tmp_path, seconds=seconds) as executor:
        assert isinstance(executor, Threads)


def test_auto_joins_a_larger_cluster_for_large_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    options = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=64, processes=False, **options) as started:
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", started.scheduler_address)
        with open_executor("auto", tmp_path, seconds=59) as executor:
            assert isinstance(executor, Threads)
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:1")
        monkeypatch.setattr(cluster, "CONNECT_TIMEOUT", 0.5)
        with pytest.raises(RecsysError, match="no Dask scheduler answers"), open_executor("auto", tmp_path, seconds=60):
            pass


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
    checks = Checks(SharedFolder.at(tmp_path / "shared"), PACKAGES)
    lacks = MissingExtraError.for_extra("nvtabular", what="etl.engine=nvtabular")
    seen = {
        "tcp://a": replace(here("ares"), releases={**releases(PACKAGES), "polars": "0.1", "python": "3.9"}),
        "tcp://b": here("brontes", "[Errno 30] Read-only file system", lacks),
        "tcp://c": ModuleNotFoundError("No module named 'recsys_cli'"),
        "tcp://d": here("dis"),
    }
    first, second, third, fourth = checks.problems(seen)
    assert first.startswith("worker tcp://a on ares runs python 3.9, polars 0.1; this process runs python 3.")
    assert second == f"worker tcp://b on brontes: {lacks.message}"
    assert (
        third
        == f"worker tcp://b on brontes cannot use the scratch folder {checks.shared.path}: [Errno 30] Read-only file system"
    )
    assert fourth == "worker tcp://c cannot run a task of recsys-cli: ModuleNotFoundError: No module named 'recsys_cli'"


def test_worker_with_another_folder_is_detected(tmp_path: Path) -> None:
    checks = Checks(SharedFolder.at(tmp_path / "shared"), PACKAGES)
    seen = {"tcp://a": checks.inspect(), "tcp://b": here("brontes")}
    (problem,) = checks.problems(seen)
    assert problem == f"files written by the workers to {checks.shared.path} are not visible here"
    assert checks.problems({"tcp://a": seen["tcp://a"]}) == {}
