"""`recsys etl` on a Dask cluster of real processes: the same bytes as without one, workers that die, workers that cannot do it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

import recsys_cli
from recsys_cli.config import RunConfig
from recsys_cli.errors import RecsysError
from recsys_cli.etl import counts, read_parts
from recsys_cli.events import Emit, Event, Message, Progress
from recsys_cli.executors import cluster as clusters
from recsys_cli.executors import dask as dask_scheduler
from recsys_cli.executors.cluster import Cluster
from recsys_cli.executors.executor import open_executor
from recsys_cli.executors.ray import open_scheduler
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace
from tests.engines import every_engine
from tests.random_tables import CONFIG, contents, differing
from tests.servers import left_by_ray, until

if find_spec("distributed") is None:
    pytest.skip("Dask is not installed (pip install 'recsys-cli[dask]')", allow_module_level=True)

RECSYS = Path(sys.executable).with_name("recsys")


def config(**etl_options: object) -> RunConfig:
    return RunConfig.model_validate({**CONFIG, "etl": etl_options})


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the dataset."""
    root = tmp_path_factory.mktemp("raw")
    download(config().dataset, Workspace(root))
    return root


@pytest.fixture
def workspace(raw: Path, tmp_path: Path) -> Workspace:
    """A workspace of one's own with the dataset."""
    shutil.copytree(raw, tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")


@pytest.fixture(scope="module")
def alone(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict[str, bytes]]:
    """What is prepared without a cluster, by rows of a shard."""
    root = tmp_path_factory.mktemp("alone") / "workspace"
    shutil.copytree(raw, root)
    return lambda shard_rows: contents(etl(config(shard_rows=shard_rows), Workspace(root)).artifact.folder)


class Dask:
    """A scheduler, and workers that were started by hand as they are on other machines: from another folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        file = folder / "scheduler.json"
        self._start("dask_scheduler", "--port", "0", "--scheduler-file", str(file), "--no-dashboard")
        while not file.exists() or not file.read_text().endswith("}"):
            time.sleep(0.02)
        self.address: str = json.loads(file.read_text())["address"]

    def _start(self, program: str, *options: str, before: str = "", path: str = "") -> subprocess.Popen[str]:
        run = f"{before}from distributed.cli.{program} import main; main()"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", run, *options], cwd=self.folder, env=environment, text=True,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.started.append(process)
        return process

    def worker(self, *, before: str = "", path: str = "", threads: int = 1) -> subprocess.Popen[str]:
        options = ("--no-nanny", "--no-dashboard", "--nthreads", str(threads), "--local-directory", str(self.folder))
        return self._start("dask_worker", self.address, *options, before=before, path=path)

    def blind_worker(self, workspace: Path, mount: str) -> None:
        """Start a worker that has another view of the workspace: in a mount namespace of its own."""
        script = (
            f'{mount}; exec "{sys.executable}" -W ignore -m distributed.cli.dask_worker "{self.address}" --no-nanny'
        )
        script += f' --no-dashboard --local-directory "{self.folder}"'
        if subprocess.run(["unshare", "-m", "sh", "-c", mount.format(workspace)], capture_output=True).returncode:
            pytest.skip("no mount namespaces here: it takes root and `unshare`")
        self.started.append(
            subprocess.Popen(
                ["unshare", "-m", "sh", "-c", script.format(workspace)], stderr=subprocess.DEVNULL, text=True
            )
        )

    def stop(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Dask]:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    started = Dask(folder)
    yield started
    started.stop()


def refused(workspace: Workspace, on: Dask, match: str) -> RecsysError:
    """Expect an error before any row is read, and nothing left behind."""
    events: list[Event] = []
    with pytest.raises(RecsysError, match=match) as caught:
        etl(config(cluster=on.address), workspace, emit=events.append)
    assert not [event for event in events if isinstance(event, Progress)]
    assert list((workspace.root / ".scratch").iterdir()) == []
    return caught.value


def when(task: str, act: Callable[[], object], events: list[Event] | None = None) -> Emit:
    """Return a receiver of events that acts once, at the first progress of a task."""
    acts = iter([act])

    def emit(event: Event) -> None:
        if events is not None:
            events.append(event)
        if isinstance(event, Progress) and event.task == task:
            next(acts, bool)()

    return emit


def is_gone(session: int) -> bool:
    """Whether no process of a session is left, in a while at the latest.

    Agents of Ray wait for a minute for its head to tell of the death of their node.
    """
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        stats = (stat.read_text(errors="replace") for stat in Path("/proc").glob("[0-9]*/stat") if stat.exists())
        with contextlib.suppress(OSError):  # a process ended meanwhile
            fields = [stat.rpartition(")")[2].split() for stat in stats]
            if not any(state != "Z" and owner == str(session) for state, _, _, owner, *_ in fields):
                return True
        time.sleep(0.1)
    return False


def test_local_cluster_makes_the_same_bytes(workspace: Workspace, alone, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made = etl(config(cluster="local", workers=2, shard_rows=1_500), workspace).artifact

    assert contents(made.folder) == alone(1_500)
    manifest = made.manifest
    assert (manifest["cluster"], manifest["workers"], manifest["threads"]) == ("local", 2, 2)
    assert list(Path.cwd().iterdir()) == []
    assert list((workspace.root / ".scratch").iterdir()) == []


def started_etl(workspace: Workspace, cluster: str, **options: object) -> subprocess.Popen[str]:
    """Start the command and wait until it writes."""
    if cluster == "ray" and find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    config_file = workspace.root.parent / "x.yaml"
    config_file.write_text(json.dumps({**CONFIG, "etl": {"cluster": cluster, **options}}))
    run = subprocess.Popen(
        [RECSYS, "-w", "workspace", "etl", "x.yaml"], cwd=workspace.root.parent, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, start_new_session=True,
        # A shell without job control starts what runs in the background, such as these tests, deaf to Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not list(workspace.root.glob(".scratch/*/artifact/train/*.parquet")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.001)
    return run


@pytest.mark.slow
@every_engine
def test_a_worker_killed_in_the_middle_changes_nothing(name: str, workspace: Workspace, dask: Dask, alone) -> None:
    victim, _ = dask.worker(threads=2), dask.worker()
    shard_rows = 60 if name == "polars" else 1_000
    run = started_etl(workspace, dask.address, engine=name, shard_rows=shard_rows)
    victim.send_signal(signal.SIGSTOP)  # with parts in hand, so that the run cannot end without it
    time.sleep(0.5)
    assert run.poll() is None, "it was done before a worker could be killed"
    victim.kill()
    _, err = run.communicate(timeout=60)

    assert run.returncode == 0, err
    assert "is lost; other workers repeat its parts" in err
    (made,) = workspace.all_data()
    assert contents(made.folder) == alone(shard_rows)
    assert list((workspace.root / ".scratch").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["read interactions", "assign to shards", "fit, pass 1", "transform"])
def test_a_worker_killed_in_each_phase_changes_nothing(
    phase: str, workspace: Workspace, dask: Dask, alone, monkeypatch
):
    monkeypatch.setattr(read_parts, "PART_CHUNKS", 1e-4)
    monkeypatch.setattr(counts, "PARTITION_ROWS", 500)
    victim, _ = dask.worker(), dask.worker()
    made = etl(config(cluster=dask.address, shard_rows=60), workspace, emit=when(phase, victim.kill)).artifact
    assert victim.poll() is not None
    assert contents(made.folder) == alone(60)
    assert list((workspace.root / ".scratch").iterdir()) == []


@pytest.mark.slow
def test_a_frozen_worker_is_given_up(workspace: Workspace, dask: Dask, alone, monkeypatch) -> None:
    """It keeps its connection and answers nothing."""
    victim, _ = dask.worker(), dask.worker()
    events: list[Event] = []

    def freeze() -> None:  # a worker of a busy machine may be silent for longer while it imports
        monkeypatch.setattr(dask_scheduler, "_SILENCE", 5.0)
        victim.send_signal(signal.SIGSTOP)

    emit = when("fit, pass 1", freeze, events)
    made = etl(config(cluster=dask.address, shard_rows=60), workspace, emit=emit).artifact
    assert contents(made.folder) == alone(60)
    assert [event.text for event in events if isinstance(event, Message) and "is lost" in event.text]


def test_a_frozen_worker_is_named_by_the_check(workspace: Workspace, dask: Dask, monkeypatch) -> None:
    monkeypatch.setattr(dask_scheduler, "_INSPECTION_TIMEOUT", 2.0)
    frozen = dask.worker()
    with open_executor(dask.address, workspace.root) as executor:
        assert isinstance(executor, Cluster)
        frozen.send_signal(signal.SIGSTOP)
        with pytest.raises(RecsysError, match=r"worker tcp://\S+: no answer within 2 s"):
            executor.inspect()
        frozen.send_signal(signal.SIGCONT)


def test_an_address_where_something_else_answers_is_an_error(workspace: Workspace, dask: Dask, monkeypatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dask.address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        assert refused(workspace, dask, match=r"no Dask scheduler answers at tcp://\S+: ").hint


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 5])
def test_random_tables_come_out_the_same(
    workers: int, dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(workers):
        dask.worker()
    with open_executor(dask.address, tmp_path) as executor:
        assert differing(executor, range(100, 106), tmp_path, monkeypatch) == []


@pytest.mark.slow
def test_no_worker_left_is_an_error_and_not_a_wait(workspace: Workspace, dask: Dask, monkeypatch) -> None:
    workers = [dask.worker(), dask.worker()]

    def kill() -> None:
        monkeypatch.setattr(clusters, "WORKER_TIMEOUT", 1.5)
        for worker in workers:
            worker.kill()

    with pytest.raises(RecsysError, match=r"etl.cluster=tcp://\S+ has had no worker for 2 s") as caught:
        etl(config(cluster=dask.address, shard_rows=100), workspace, emit=when("transform", kill))
    assert str(caught.value.hint).startswith(f"start `dask worker {dask.address}` on a machine")
    assert workspace.all_data() == []


def test_a_scheduler_that_dies_is_an_error(workspace: Workspace, dask: Dask, monkeypatch) -> None:
    dask.worker()

    def kill() -> None:
        monkeypatch.setattr(clusters, "CONNECT_TIMEOUT", 1.5)
        dask.started[0].kill()

    with pytest.raises(RecsysError, match=r"the Dask scheduler of etl.cluster=tcp://\S+ is lost"):
        etl(config(cluster=dask.address, shard_rows=100), workspace, emit=when("transform", kill))


def test_no_worker_at_all_is_said(workspace: Workspace, dask: Dask, monkeypatch) -> None:
    monkeypatch.setattr(clusters, "WORKER_TIMEOUT", 0.5)
    assert refused(workspace, dask, match=r"etl.cluster=tcp://\S+ has had no worker").hint


def test_no_scheduler_at_all_is_said(workspace: Workspace, dask: Dask, monkeypatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT_TIMEOUT", 0.5)
    dask.stop()
    assert refused(workspace, dask, match=r"no Dask scheduler answers at tcp://\S+: ").hint


@pytest.mark.parametrize(
    ("mount", "match"),
    [
        ("mount -t tmpfs none {0}", r"worker tcp://\S+ on \S+ cannot use the scratch folder /\S+: .*No such file"),
        ("mount --bind {0} {0} && mount -o remount,bind,ro {0}", r"worker tcp://\S+ on \S+ cannot use .*Read-only"),
    ],
)
def test_a_worker_that_does_not_share_the_workspace(workspace: Workspace, dask: Dask, mount: str, match: str) -> None:
    dask.blind_worker(workspace.root, mount)
    assert refused(workspace, dask, match=match).hint


def test_a_worker_without_recsys(workspace: Workspace, dask: Dask) -> None:
    dask.worker(before="import sys; sys.modules['recsys_cli'] = None; ")
    assert refused(workspace, dask, match=r"worker tcp://\S+ cannot run a task of recsys-cli: .*recsys_cli").hint


def test_a_late_worker_of_another_source_is_an_error(workspace: Workspace, dask: Dask) -> None:
    shutil.copytree(Path(recsys_cli.__file__).parent, dask.folder / "other" / "recsys_cli")
    (dask.folder / "other" / "recsys_cli" / "more.py").write_text("")
    dask.worker()
    with open_executor(dask.address, workspace.root) as executor:
        dask.worker(path=str(dask.folder / "other"))
        with pytest.raises(RecsysError, match=r"worker process \d+ on \S+ runs recsys-cli \S+ of source") as caught:
            list(executor.map(time.sleep, [0.1] * 300))
    assert "pip install recsys-cli==" in str(caught.value.hint)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["local", "ray"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_no_process(workspace: Workspace, cluster: str, number: signal.Signals) -> None:
    before = left_by_ray()
    run = started_etl(workspace, cluster, shard_rows=10, workers=2)
    if number == signal.SIGINT:  # as a terminal does: to all processes
        os.killpg(run.pid, number)
    else:
        run.send_signal(number)
    _, err = run.communicate(timeout=60)

    assert run.returncode == 128 + number, err
    assert "error: interrupted" in err
    assert "Traceback" not in err
    assert is_gone(run.pid)
    assert list((workspace.root / ".scratch").iterdir()) == []
    assert {path.name for path in workspace.root.parent.iterdir()} == {"x.yaml", "workspace"}
    until(lambda: left_by_ray() <= before)  # those of other tests come and go


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["local", "ray"])
def test_killed_leaves_no_process(workspace: Workspace, cluster: str) -> None:
    before = set(Path("/tmp").glob("recsys-ray-*"))
    run = started_etl(workspace, cluster, shard_rows=10, workers=2)
    run.kill()
    run.communicate()
    assert is_gone(run.pid)
    if cluster == "ray":
        with open_scheduler("ray", 1, workspace.root):  # the next one removes what is left
            left = set(Path("/tmp").glob("recsys-ray-*")) - before
        assert len(left) == 1
        assert not any(folder.exists() for folder in left)
