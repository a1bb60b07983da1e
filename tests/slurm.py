"""A Slurm cluster of one node, whose daemons run in a folder of the test."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.servers import free_ports, until

_CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
EnforcePartLimits=ALL
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=60 State=UP
"""
_PATIENCE = 500.0


class Slurm:
    """A running cluster; its commands find it by SLURM_CONF."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def call(self, *command: str) -> str:
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def state(self, job: str) -> str:
        facts = self.call("scontrol", "-o", "show", "job", job).split()
        return dict(fact.split("=", 1) for fact in facts if "=" in fact)["JobState"]

    def wait(self, job: str, *states: str) -> None:
        until(lambda: self.state(job) in states, seconds=_PATIENCE, said=lambda: self.state(job))


@contextmanager
def cluster(folder: Path) -> Iterator[Slurm]:
    """Start munged, slurmctld and slurmd; end them afterwards."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if _find(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine (apt-get install slurm-wlm munge)")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    folder.chmod(0o755)
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o400)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    config = folder / "slurm.conf"
    config.write_text(_CONFIG.format(folder=folder, host=socket.gethostname(), ports=free_ports(2)))
    munge = ["--force", "--foreground", *(f"--{name}={folder}/{file}" for name, file in (
        ("key-file", "key"), ("socket", "munge.socket"), ("pid-file", "munge.pid"), ("seed-file", "munge.seed")))]  # fmt: skip
    daemons = (("munged", *munge), ("slurmctld", "-D", "-c", "-f", str(config)), ("slurmd", "-D", "-f", str(config)))
    slurm = Slurm({"SLURM_CONF": str(config)})
    with ExitStack() as stack:
        for name, *options in daemons:
            stack.enter_context(_daemon(folder, name, *options))
            if name == "munged":
                until((folder / "munge.socket").exists)
        until(
            lambda: "idle" in slurm.call("sinfo", "-h", "-o", "%t"),
            said=lambda: "".join(path.read_text() for path in folder.glob("*.log")),
        )
        yield slurm


@contextmanager
def _daemon(folder: Path, name: str, *options: str) -> Iterator[None]:
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen([str(_find(name)), *options], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
