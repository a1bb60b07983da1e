"""Cores and thread variables, in containers with a CPU quota too."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from recsys_cli.cpu import configure_threads, cores, cpu_quota, lacks_cores


@pytest.fixture
def busy() -> Iterator[None]:
    """A busy process for each core."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    time.sleep(0.5)
    yield
    for other in others:
        other.kill()
        other.wait()


def load_file(folder: Path, runnable: int) -> Path:
    """A file as /proc/loadavg, with a number of runnable threads."""
    path = folder / f"load-{runnable}"
    path.write_text(f"0.00 0.01 0.05 {runnable}/812 4711\n")
    return path


def test_other_runnable_threads_take_cores(tmp_path: Path) -> None:
    spare = (os.cpu_count() or 1) - cores()
    assert not lacks_cores(load_file(tmp_path, 1 + spare))
    assert lacks_cores(load_file(tmp_path, 2 + spare))
    assert not lacks_cores(tmp_path / "no such file")


@pytest.mark.usefixtures("busy")
def test_idle_threads_sleep_beside_busy_processes_unless_the_user_says_otherwise() -> None:
    environment: dict[str, str] = {}
    configure_threads(environment)
    assert environment["OMP_WAIT_POLICY"] == "passive"
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        chosen = {name: "1"}
        configure_threads(chosen)
        assert chosen.get(name) == "1"
        assert {key for key in chosen if key != name} <= {"OMP_NUM_THREADS", "POLARS_MAX_THREADS"}


@pytest.mark.usefixtures("busy")
def test_the_console_script_configures_threads_before_torch_loads() -> None:
    program = (
        "import sys, os\n"
        "from recsys_cli.cli import main\n"
        "sys.argv = ['recsys', '--version']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules\n"
        "print(os.environ['OMP_WAIT_POLICY'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "passive"


def group(root: Path, path: str, **files: str) -> None:
    """Write the files of a control group."""
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".", 1)).write_text(text)


def test_the_quota_is_the_least_of_a_group_and_its_parents_in_both_versions(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    root = tmp_path / "v2"
    group(root, "a", cpu__max="150000 100000\n")
    group(root, "a/b", cpu__max="max 100000\n")
    assert cpu_quota(root, own) == 1.5
    group(root, "a/b", cpu__max="50000 100000\n")
    assert cpu_quota(root, own) == 0.5
    own.write_text("3:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n")
    root = tmp_path / "v1"
    group(root, "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert cpu_quota(root, own) is None
    # Inside a container the mount point is the group itself.
    group(root, "cpu", cpu__cfs_quota_us="300000\n", cpu__cfs_period_us="100000\n")
    assert cpu_quota(root, own) == 3.0


@pytest.mark.parametrize("text", ["", "nonsense", "max", "-5 0", "1 0"])
def test_odd_files_are_no_quota(text: str, tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    own.write_text("0::/\n")
    group(tmp_path, "", cpu__max=text)
    assert cpu_quota(tmp_path, own) is None
    assert cpu_quota(tmp_path, tmp_path / "missing") is None


def test_a_real_control_group_limits_the_threads() -> None:
    parent = Path("/sys/fs/cgroup/cpu")
    if not (parent / "cpu.cfs_quota_us").is_file() and not os.access(parent, os.W_OK):
        pytest.skip("no control group of version 1 to write to")
    folder = parent / f"recsys-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a control group: {error}")
    program = (
        "import os\n"
        f"open('{folder}/tasks', 'w').write(str(os.getpid()))\n"
        "from recsys_cli.cpu import configure_threads, cores\n"
        "environment = {}\n"
        "configure_threads(environment)\n"
        "print(cores(), environment.get('OMP_NUM_THREADS'), environment.get('POLARS_MAX_THREADS'))\n"
    )
    try:
        (folder / "cpu.cfs_quota_us").write_text("100000")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    finally:
        folder.rmdir()
    expected = ["1", "1", "1"] if len(os.sched_getaffinity(0)) > 1 else ["1", "None", "None"]
    assert done.stdout.split() == expected
