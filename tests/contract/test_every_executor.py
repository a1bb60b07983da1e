"""Every executor does the same: order of results, errors, parts in flight, and lost workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

from recsys_cli.errors import RecsysError
from recsys_cli.events import Event, Message
from recsys_cli.executors.cluster import Cluster
from recsys_cli.executors.executor import Executor, open_executor
from tests.random_tables import differing
from tests.servers import left_by_ray, until

PACKAGES = {None: "polars", "local": "distributed", "ray": "ray"}
CLUSTERS = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed"))
    for name, package in PACKAGES.items()
    if name
]

Opened = tuple[Executor, list[Event]]


@pytest.fixture(scope="module", params=[None, *CLUSTERS])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """An executor with two workers, and its events."""
    events: list[Event] = []
    scratch = tmp_path_factory.mktemp("scratch")
    with open_executor(request.param, scratch, workers=2, emit=events.append) as executor:
        yield executor, events


of_processes = pytest.mark.parametrize("opened", CLUSTERS, indirect=True)


def warnings_of(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Message) and event.level == "warning"]


def dies(marker: Path) -> str:
    """Return an expression that kills its process unless the marker exists."""
    return f"os.path.exists({str(marker)!r}) or (open({str(marker)!r}, 'w').close(), os.kill(os.getpid(), 9))"


def evaluated(executor: Executor, expressions: list[str]) -> Iterator[object]:
    """Evaluate expressions as parts: a function of this file is not on every worker's path."""
    return executor.map(eval, [expression.replace("os.", "__import__('os').") for expression in expressions])


def test_results_are_in_the_order_of_parts(opened: Opened) -> None:
    executor, _ = opened
    assert list(executor.map(abs, range(-20, 0))) == list(range(20, 0, -1))
    assert list(executor.map(abs, [])) == []
    delays = [0.3, 0, 0.1, 0, 0.2, 0]
    slow = [f"[__import__('time').sleep({delay}), {number}][1]" for number, delay in enumerate(delays)]
    assert list(evaluated(executor, slow)) == list(range(6))


def test_parts_in_flight_are_bounded(opened: Opened) -> None:
    executor, _ = opened
    taken: list[int] = []
    parts = (taken.append(part) or part for part in range(100))
    results = executor.map(abs, parts)
    assert next(results) == 0
    assert len(taken) <= 6
    results.close()
    assert len(taken) <= 6


def test_two_maps_at_once(opened: Opened) -> None:
    executor, _ = opened
    pairs = zip(executor.map(abs, range(-30, 0)), executor.map(str, range(30)), strict=True)
    assert list(pairs) == [(30 - number, str(number)) for number in range(30)]


def test_error_of_the_first_part_is_raised_unchanged(opened: Opened) -> None:
    executor, _ = opened
    late = "int([__import__('time').sleep(0.3), 'first'][1])"
    with pytest.raises(ValueError, match=r"invalid literal for int.*'first'") as caught:
        list(evaluated(executor, ["1", late, "int('second')"]))
    if isinstance(executor, Cluster):
        assert "Traceback" in caught.value.__notes__[0]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        list(executor.map(os.stat, ["nowhere"]))
    assert list(executor.map(int, ["1"])) == [1]


def test_facts_name_the_cluster(opened: Opened) -> None:
    executor, _ = opened
    threads = {"cluster": None, "workers": 1, "threads": 2}
    name = executor.scheduler.name if isinstance(executor, Cluster) else None
    assert executor.facts == (
        threads if name is None else {"cluster": name, "workers": executor.facts["workers"], "threads": 2}
    )


@of_processes
def test_workers_share_the_cores(opened: Opened) -> None:
    cluster, _ = opened
    threads = os.environ.get("POLARS_MAX_THREADS", str(max(1, len(os.sched_getaffinity(0)) // 2)))
    assert list(evaluated(cluster, ["os.environ.get('POLARS_MAX_THREADS')"])) == [threads]
    assert list(evaluated(cluster, ["__import__('pyarrow').cpu_count()"])) == [1]


@of_processes
def test_part_of_a_killed_worker_is_repeated(opened: Opened, tmp_path: Path) -> None:
    cluster, events = opened
    events.clear()
    parts = [
        f"[{dies(tmp_path / str(number))}, {number}][1]" if number in {3, 17} else str(number) for number in range(30)
    ]
    assert list(evaluated(cluster, parts)) == list(range(30))
    assert warnings_of(events)
    assert all(text.endswith("is lost; other workers repeat its parts") for text in warnings_of(events))


@of_processes
def test_part_that_kills_every_worker_is_an_error(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _ = opened
    if cluster.scheduler.name == "local":  # four new processes of Dask take a minute on a busy machine
        monkeypatch.setattr(cluster.scheduler.client.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(RecsysError, match="every worker that tried 9 died") as caught:
        list(cluster.map(os._exit, [9]))
    assert "etl.shard_rows" in str(caught.value.hint)
    assert list(cluster.map(abs, [-1])) == [1]


@pytest.mark.parametrize("name", CLUSTERS)
def test_nothing_is_printed_or_left_behind(name: str, tmp_path: Path) -> None:
    script = f"""
        import contextlib, os, pathlib, re, sys
        from recsys_cli.executors.executor import open_executor
        with open_executor({name!r}, pathlib.Path("scratch"), workers=1) as executor:
            assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]
            for expression in ("int('x')", {dies(tmp_path / "marker")!r}):
                with contextlib.suppress(ValueError):
                    list(executor.map(eval, [re.sub(r"\\bos[.]", "__import__('os').", expression)]))
        assert not [variable for variable in os.environ if variable.startswith(("RAY_AUTH", "RAY_USAGE"))]
        """
    before = left_by_ray()
    (tmp_path / "home").mkdir()
    (tmp_path / "scratch").mkdir()
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", dedent(script)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert {path.name for path in tmp_path.iterdir()} == {"home", "marker", "scratch"}
    assert list((tmp_path / "home").iterdir()) == []
    until(lambda: left_by_ray() <= before)  # those of other tests come and go
    assert {path.name for path in (tmp_path / "scratch").iterdir()} <= {"shared", "dask-scratch-space"}


@pytest.mark.slow
@of_processes
@pytest.mark.parametrize("seeds", [range(200, 210), range(210, 220), range(220, 230)])
def test_random_tables_come_out_the_same(
    opened: Opened, seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty tables, in parts of any size."""
    assert differing(opened[0], seeds, tmp_path, monkeypatch) == []
