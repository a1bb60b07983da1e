"""Training under torchrun, on one node and on two: the death of any rank restarts all ranks, which come to the same bytes."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from recsys_cli.workspace import TrainedRun, Workspace
from tests.checkerboard import losses_of, same_weights
from tests.cli.conftest import copied
from tests.servers import free_ports

pytestmark = pytest.mark.slow

TRAIN = ["train", "ratings.yaml", "train.epochs=15", "train.early_stopping=null", "train.checkpoint_steps=5"]
_PATIENCE = 500.0


@pytest.fixture(scope="module")
def whole(stations, tmp_path_factory) -> TrainedRun:
    """A run of two ranks without a failure."""
    folder = copied(stations["prepared"], tmp_path_factory.mktemp("whole"))
    with started(folder, ["--standalone", "--nproc-per-node=2"]) as (agent,):
        assert agent.wait(_PATIENCE) == 0, said(folder)
    return run_of(folder)


@pytest.mark.parametrize("launch", ["one node", "two nodes", "two nodes, static"])
def test_the_death_of_any_rank_restarts_all_ranks_which_come_to_the_same_bytes(launch, prepared, whole, tmp_path):
    """Kubeflow Trainer has the static rendezvous, whose nodes do not tell each other of a restart."""
    (port,), draw = free_ports(1), random.Random(launch)
    restarts = ["--max-restarts=3", f"--nproc-per-node={2 if launch == 'one node' else 1}"]
    at = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=gang"]
    nodes = [[*at, *restarts, f"--nnodes={1 if launch == 'one node' else 2}"]] * (1 if launch == "one node" else 2)
    if launch.endswith("static"):
        at = ["--master-addr=127.0.0.1", f"--master-port={port}", "--nnodes=2"]
        nodes = [[*at, *restarts, f"--node-rank={rank}"] for rank in range(2)]
    with started(tmp_path, *nodes) as agents:
        for rank, lines in zip(draw.sample(range(2), 2), (draw.randint(1, 50), draw.randint(60, 110)), strict=True):
            kill(rank, agents, tmp_path, lines=lines)
        assert [agent.wait(_PATIENCE) for agent in agents] == [0] * len(agents), said(tmp_path)
    assert "resuming" in said(tmp_path)
    run = run_of(tmp_path)
    assert losses_of(run) == losses_of(whole)
    assert same_weights(run, whole)
    assert same_weights(run, whole, "best")


def test_a_finished_run_is_up_to_date_after_a_restart_of_the_job(prepared, whole, tmp_path):
    copied(whole.folder.parents[1], tmp_path / "workspace")
    with started(tmp_path, ["--standalone", "--nproc-per-node=2"]) as (agent,):
        assert agent.wait(_PATIENCE) == 0, said(tmp_path)
    assert "up to date" in said(tmp_path)
    run_of(tmp_path)


@contextmanager
def started(folder: Path, *nodes: Sequence[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run torchrun once per node; all processes have ended afterwards."""
    agents = []
    with ExitStack() as stack:
        for number, options in enumerate(nodes):
            log = stack.enter_context((folder / f"node{number}.log").open("wb"))
            line = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "recsys_cli", *TRAIN]
            agents.append(subprocess.Popen(line, cwd=folder, stdout=log, stderr=log))
        try:
            yield agents
        finally:
            for agent in agents:
                for process in [*children(agent.pid), agent]:
                    process.kill()
                agent.wait()


def kill(
    rank: int, agents: Sequence[subprocess.Popen[bytes]], folder: Path, *, lines: int, parent: int | None = None
) -> None:
    """Kill a rank of agents, or of another parent, once the run has written so many lines of metrics."""
    end = time.monotonic() + _PATIENCE
    while True:
        written = [path.read_bytes().count(b"\n") for path in folder.glob("workspace/runs/*/metrics.jsonl")]
        parents = [agent.pid for agent in agents] if parent is None else [parent]
        found = [one for pid in parents for one in children(pid) if variables_of(one).get("RANK") == str(rank)]
        if found and written and written[0] >= lines:
            return found[0].kill()
        assert time.monotonic() < end, said(folder)
        assert all(agent.poll() is None for agent in agents), said(folder)
        time.sleep(0.02)


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def variables_of(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def run_of(folder: Path) -> TrainedRun:
    (run,) = Workspace(folder / "workspace").runs()
    assert run.exists, said(folder)
    assert not list(folder.rglob("*.partial"))
    return run


def said(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("node*.log"))


def test_ray_runs_torchrun_on_each_node_and_a_dead_rank_restarts_all(recsys, prepared, whole, tmp_path, monkeypatch):
    """The nodes are two raylets of this machine, beside a head without CPUs, as in the job file."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    options = ["--nodes", 2, "--ray", "--image", "any"]
    assert recsys("submit", *TRAIN[1:], *options).code == 0
    head = yaml.safe_load(Path("ratings.ray").read_text())["spec"]["rayClusterSpec"]["headGroupSpec"]
    (variable,) = head["template"]["spec"]["containers"][0]["env"]
    small = {"object_store_memory": 80 << 20}
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, **small)
        environment = {**os.environ, variable["name"]: variable["value"], "RAY_ADDRESS": cluster.address}
        with (tmp_path / "node0.log").open("wb") as log:
            line = [sys.executable, "-m", "recsys_cli.executors.ray_gang"]
            job = subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        kill(1, [job], tmp_path, lines=30, parent=os.getpid())  # the raylets are children of this process
        assert job.wait(_PATIENCE) == 0, said(tmp_path)
    finally:
        cluster.shutdown()
    assert "resuming" in said(tmp_path)
    assert same_weights(run_of(tmp_path), whole)
