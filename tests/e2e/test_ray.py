"""`recsys etl` on a Ray cluster of three nodes: the same bytes as on Dask and in threads, nodes that die, workers that differ."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import patch

import pytest
import yaml

import recsys_cli
from recsys_cli.config import load
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace
from tests.random_tables import CONFIG, contents
from tests.servers import free_ports, until

if find_spec("ray") is None:
    pytest.skip("Ray is not installed (pip install 'recsys-cli[ray]')", allow_module_level=True)

CONFIGS = Path(__file__).parents[2] / "configs"
RECSYS = Path(sys.executable).with_name("recsys")


@pytest.fixture
def nodes() -> Iterator[Any]:
    """Three nodes of one core, as processes of this machine."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="rt-", ignore_cleanup_errors=True) as folder:
        before = dict(os.environ)
        os.environ["RAY_TMPDIR"] = folder
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            cluster.lost = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
            yield cluster
        finally:
            cluster.shutdown()
            os.environ.clear()
            os.environ.update(before)


def recsys(workspace: Workspace, address: str, *line: str) -> subprocess.Popen[str]:
    """Start a command of its own process, because Ray ends one whose node dies.

    Its folder is not that of the source: workers on its machine would import from there.
    """
    workspace.root.mkdir(parents=True, exist_ok=True)
    command = [str(RECSYS), "-w", str(workspace.root), *line]
    environment = {**os.environ, "RAY_ADDRESS": address, "COLUMNS": "500"}
    return subprocess.Popen(
        command, cwd=workspace.root.parent, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "clusters"),
    [
        ("demo", None, [("local", 1), ("local", 2), ("ray", 1), ("nodes", 3)]),
        ("synthetic-impressions", None, [("local", 1), ("local", 2), ("ray", 1), ("nodes", 3)]),
        ("ml-latest-small", "ml-latest-small.zip", [("local", 2), ("nodes", 3)]),
        ("amazon-5core-toys", "s3rec/Toys_and_Games.txt", [("local", 2), ("nodes", 3)]),
    ],
)
def test_threads_dask_and_ray_make_the_same_bytes(
    name: str,
    file: str | None,
    clusters: list[tuple[str, int]],
    nodes: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    path, made = CONFIGS / f"{name}.yaml", {}
    config = load(path)
    raw = request.getfixturevalue("shared_data") / file if file else None
    for kind, workers in [("threads", 1), *clusters]:
        workspace = Workspace(tmp_path / f"{kind}-{workers}")
        download(config.dataset, workspace, from_file=raw)
        options = {"threads": [], "nodes": ["etl.cluster=ray"]}.get(
            kind, [f"etl.cluster={kind}", f"etl.workers={workers}"]
        )
        address = nodes.address if kind == "nodes" else "local"
        run = recsys(workspace, address, "etl", str(path), f"etl.shard_rows={30_000 if file else 3000}", *options)
        _, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        (data,) = workspace.all_data()
        assert data.manifest["cluster"] == {"threads": None, "nodes": "ray"}.get(kind, kind)
        assert kind == "threads" or data.manifest["threads"] == workers
        made[kind, workers] = contents(data.folder)
        shutil.rmtree(workspace.root)
    first = made.pop(("threads", 1))
    assert [kind for kind, files in made.items() if files != first] == []


@pytest.mark.slow
def test_a_node_killed_in_the_middle_changes_nothing(nodes: Any, tmp_path: Path) -> None:
    file, workspace = tmp_path / "x.yaml", Workspace(tmp_path / "workspace")
    file.write_text(yaml.safe_dump({**CONFIG, "etl": {"shard_rows": 20}}))
    config = load(file)
    download(config.dataset, workspace)
    alone = contents(etl(config, workspace).artifact.folder)
    run = recsys(workspace, nodes.address, "etl", str(file), "etl.cluster=ray", "--force")
    while not list(workspace.root.glob(".scratch/*/artifact/train/*.parquet")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.001)
    nodes.remove_node(nodes.lost[0], allow_graceful=False)
    _, err = run.communicate(timeout=120)
    assert run.returncode == 0, err
    (made,) = workspace.all_data()
    assert contents(made.folder) == alone
    assert made.manifest["cluster"] == "ray"
    assert list((workspace.root / ".scratch").iterdir()) == []


@pytest.mark.slow
def test_doctor_finds_a_node_with_another_source(nodes: Any, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    run = recsys(workspace, nodes.address, "doctor", "--cluster", "ray", "--json")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, err
    assert sorted(json.loads(out)["addresses"].values()) == [1, 1, 1]

    shutil.copytree(Path(recsys_cli.__file__).parent, tmp_path / "other" / "recsys_cli")
    (tmp_path / "other" / "recsys_cli" / "cpu.py").write_text("# changed")
    os.environ["PYTHONPATH"] = str(tmp_path / "other")
    nodes.add_node(num_cpus=1)
    del os.environ["PYTHONPATH"]
    run = recsys(workspace, nodes.address, "doctor", "--cluster", "ray")
    _, err = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "runs recsys-cli" in err or "cannot run a task of recsys-cli" in err


@pytest.mark.slow
def test_a_wrong_token_is_an_error_without_lines_of_ray(tmp_path: Path) -> None:
    ports = free_ports(2)
    options = [f"--{name}={port}" for name, port in zip(("port", "ray-client-server-port"), ports, strict=True)]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="rt-", ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, "RAY_TMPDIR": folder, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
        start = [str(RECSYS.with_name("ray")), "start", "--head", "--block", "--num-cpus=1", *options]
        head = subprocess.Popen(start, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: is_open(ports[0]), seconds=60)
            with patch.dict(os.environ, {**environment, "RAY_AUTH_TOKEN": "b" * 64}):
                _, err = recsys(
                    Workspace(tmp_path), f"127.0.0.1:{ports[0]}", "doctor", "--cluster", "ray"
                ).communicate()
        finally:
            head.terminate()
            head.wait(60)
    first, second = err.splitlines()
    assert first.startswith(f"error: no Ray cluster answers at 127.0.0.1:{ports[0]}: ")
    assert second.startswith("hint: ")
    assert "RAY_AUTH_TOKEN" in second


def is_open(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_lack_of_memory_is_said(tmp_path: Path) -> None:
    script = """
        import pathlib, sys
        from recsys_cli.errors import RecsysError
        from recsys_cli.executors.executor import open_executor
        try:
            with open_executor("ray", pathlib.Path(sys.argv[1]), workers=1) as executor:
                list(executor.map(eval, ["__import__('time').sleep(60)"]))
        except RecsysError as error:
            print(error, error.hint)
        """
    environment = {**os.environ, "RAY_memory_usage_threshold": "0.0001", "RAY_memory_monitor_refresh_ms": "100"}
    run = subprocess.run(
        [sys.executable, "-c", dedent(script), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert re.search(
        r"^(worker \S+ cannot run a task of recsys-cli|every worker that tried .* died): .*low on memory", run.stdout
    )
