"""Checks of workers, and executors by the name of a cluster."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from recsys_cli.cpu import Threads
from recsys_cli.errors import DataError, MissingExtraError, RecsysError
from recsys_cli.executors import address, cluster
from recsys_cli.executors.checks import Checks, releases
from recsys_cli.executors.cluster import SharedTask
from recsys_cli.executors.executor import open_executor

PACKAGES = ("polars", "distributed")


def raise_data_error(part: int) -> None:
    raise DataError(f"part {part} is odd", hint="fix it")


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


@pytest.fixture
def checks(tmp_path: Path) -> Checks:
    return Checks.at(tmp_path / "shared", PACKAGES)


def test_recsys_error_keeps_class_message_and_hint(checks: Checks) -> None:
    found = SharedTask(raise_data_error, checks).run(3).error
    assert isinstance(found, DataError)
    assert (found.message, found.hint) == ("part 3 is odd", "fix it")
    assert "raise_data_error" in found.__notes__[0]


@pytest.mark.parametrize(
    ("other", "said", "hint"),
    [
        ({"folder": Path("/elsewhere")}, " cannot use the scratch folder /elsewhere: .*No such file", "at the same path"),
        ({"token": "other"}, " cannot use the scratch folder .*the worker has another folder at", "at the same path"),
        ({"releases": {**releases(PACKAGES), "recsys-cli": "0.1"}}, " runs recsys-cli .*; this process runs .* 0.1", "pip"),
        ({"requires": partial(MissingExtraError.for_extra, "gpu", what="it")}, ": it needs the 'gpu' extra", "on every worker"),
    ],
)  # fmt: skip
def test_late_worker_is_checked_before_its_first_part(checks: Checks, other: dict, said: str, hint: str) -> None:
    found = SharedTask(abs, replace(checks, **other)).run(1).error
    assert isinstance(found, RecsysError)
    assert re.match(rf"worker process \d+ on \S+?{said}", found.message)
    assert hint in str(found.hint)


def test_all_problems_of_workers_are_listed(checks: Checks) -> None:
    differs = replace(checks, releases={**checks.releases, "polars": "0.1", "python": "3.9"})
    workers = {
        "tcp://a": differs.problems(), "tcp://b": ModuleNotFoundError("No module named 'recsys_cli'"),
        "tcp://c": checks.problems(), "tcp://d": TimeoutError("no answer"),
    }  # fmt: skip
    with pytest.raises(RecsysError) as caught:
        checks.check(workers)
    first, second, third = caught.value.message.splitlines()
    assert re.fullmatch(
        r"worker tcp://a on \S+ runs python 3.\d+, polars \S+; this process runs python 3.9, polars 0.1", first
    )
    assert second == "worker tcp://b cannot run a task of recsys-cli: ModuleNotFoundError: No module named 'recsys_cli'"
    assert third == "worker tcp://d: no answer"


def test_worker_with_another_folder_is_detected(checks: Checks) -> None:
    checks.check({"tcp://a": checks.problems()})
    with pytest.raises(RecsysError, match=r"^files written by the workers to .* are not visible here$"):
        checks.check({"tcp://a": {}, "tcp://b": {}})


def test_parts_of_drivers_in_different_folders_take_turns(checks: Checks, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()

    def cwd_before_and_after(seconds: float) -> list[str]:
        before = Path.cwd().name
        time.sleep(seconds)
        return [before, Path.cwd().name]

    tasks = {name: SharedTask(cwd_before_and_after, checks, tmp_path / name) for name in ("one", "two")}
    with ThreadPoolExecutor(4) as pool:
        running = [(name, pool.submit(tasks[name].run, 0.05)) for name in ("one", "two") * 4]
    assert all(future.result().result == [name, name] for name, future in running)
