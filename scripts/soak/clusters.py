"""Kills of workers and drivers of a preparation on Dask and Ray: no byte differs, and nothing is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from scripts.soak.arena import Answer, Arena, Outcome
from tests.servers import left_by_ray

RECSYS = Path(sys.executable).with_name("recsys")
_SHARDS = ("etl.shard_rows=20", "--force", "--quiet")
_SHARE_OF_RAY = 5
"""One kill of so many is on Ray, whose start takes longest."""
_AGENTS_OF_RAY = 65
"""Seconds in which agents of a dead node write to their logs."""


def main(seed: int, count: int, base: Arena, folder: Path) -> Outcome:
    """Kill a worker or the driver at a random moment, `count` times, and let the command end, again where it has to."""
    outcome, rng = Outcome("clusters"), random.Random(f"{seed} clusters")
    alone = _run(base.copy(folder / "alone"))
    outcome.expect(alone.code == 0, "etl without a cluster", alone)
    expected = _contents(folder / "alone")
    on_ray = -(-count // _SHARE_OF_RAY)
    dask = _Dask(folder / "dask")
    try:
        for number in range(count - on_ray):
            arena = base.copy(folder / "killed")
            _kill(f"Dask, kill {number}", arena, f"etl.cluster={dask.address}", dask.victim, rng, outcome)
            _check(arena, expected, f"Dask, kill {number}", outcome)
            dask.refill()
    finally:
        dask.stop()
    left = [path.name for path in dask.folder.iterdir() if path.name != "scheduler.json" and any(path.rglob("*.arrow"))]
    outcome.expect(not left, f"workers of Dask left {left}")
    before = left_by_ray()
    for number in range(on_ray):
        arena = base.copy(folder / "killed")
        _kill(f"Ray, kill {number}", arena, "etl.cluster=ray", _process_of_ray, rng, outcome)
        _check(arena, expected, f"Ray, kill {number}", outcome)
    time.sleep(_AGENTS_OF_RAY)
    _run(base.copy(folder / "killed"), "etl.cluster=ray")  # the next command removes what is left
    left_now = left_by_ray() - before
    outcome.expect(not left_now, f"Ray left {left_now}")
    return outcome


def _kill(name: str, arena: Arena, cluster: str, victim: object, rng: random.Random, outcome: Outcome) -> None:
    started = time.monotonic()
    driver = _start(arena, cluster)
    who = rng.choice(("worker", "driver"))
    while "ray" in cluster and who == "worker" and driver.poll() is None and victim(driver.pid) is None:  # type: ignore[operator]
        time.sleep(0.1)
    time.sleep(rng.uniform(2, 4) if "ray" not in cluster else rng.uniform(0, 10))
    pid = driver.pid if who == "driver" else victim(driver.pid)  # type: ignore[operator]
    alive = driver.poll() is None
    if pid is not None and alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    answer = _wait(driver)
    outcome.count(f"{cluster.partition('=')[2][:3]}: {who} killed" if alive and pid else "over before the kill")
    if who == "driver" and alive:
        answer = _wait(_start(arena, cluster))
    outcome.expect(answer.code == 0, f"{name} of the {who} after {time.monotonic() - started:.1f} s", answer)


def _start(arena: Arena, *overrides: str) -> subprocess.Popen[str]:
    line = [str(RECSYS), "etl", "x.yaml", *_SHARDS, *overrides]
    return subprocess.Popen(line, cwd=arena.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _wait(process: subprocess.Popen[str]) -> Answer:
    try:
        text, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
    return Answer(process.returncode, text)


def _run(arena: Arena, *overrides: str) -> Answer:
    return _wait(_start(arena, *overrides))


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the prepared files, but for the page and the manifest, which tell how it was done."""
    files = (folder / "workspace" / "data").glob("*/**/*.parquet")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _check(arena: Arena, expected: dict[str, bytes], name: str, outcome: Outcome) -> None:
    found = _contents(arena.folder)
    other = sorted(path for path in found.keys() | expected if found.get(path) != expected.get(path))
    outcome.expect(not other, f"{name}: {len(other)} files with other bytes, such as {other[:3]}")
    left = list((arena.workspace / ".scratch").glob("*"))
    outcome.expect(not left, f"{name} left {left}")


def _process_of_ray(driver: int) -> int | None:
    """Return a process that runs parts for a driver; None without one. Agents are no such: a node ends with each of them."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith((b"ray::run", b"ray::IDLE")) and driver in _ancestors(
                int(path.parent.name)
            ):
                return int(path.parent.name)
    return None


def _ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


class _Dask:
    """A scheduler, and two workers."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        file = folder / "scheduler.json"
        self._scheduler = self._run("dask_scheduler", "--port", "0", "--scheduler-file", str(file), "--no-dashboard")
        while not file.exists() or not file.read_text().endswith("}"):
            time.sleep(0.05)
        self.address: str = json.loads(file.read_text())["address"]
        self._workers: list[subprocess.Popen[bytes]] = []
        self.refill()

    def _run(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        code = f"from distributed.cli.{program} import main; main()"
        line = [sys.executable, "-W", "ignore", "-c", code, *options]
        return subprocess.Popen(line, cwd=self.folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def victim(self, driver: int) -> int:
        """Return a worker."""
        del driver
        return self._workers[0].pid

    def refill(self) -> None:
        """Start workers in place of dead ones."""
        time.sleep(0.1)
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        options = ("--no-nanny", "--no-dashboard", "--nthreads", "1", "--local-directory", str(self.folder))
        while len(self._workers) < 2:
            self._workers.append(self._run("dask_worker", self.address, *options))

    def stop(self) -> None:
        """End all."""
        for process in [*self._workers, self._scheduler]:
            process.terminate()
            process.wait()
