"""Servers in processes of their own, on free ports."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.forked import Forked

RECSYS = str(Path(sys.executable).with_name("recsys"))
Process = Forked | subprocess.Popen[Any]


class Running:
    """A server process.

    Attributes:
        url: Its address.
        process: The process.
        feedback: Its feedback folder.
    """

    def __init__(self, process: Process, url: str, feedback: Path) -> None:
        self.process, self.url, self.feedback = process, url, feedback

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        # A context of TLS, which nothing here needs, takes a twentieth of a second for each new connection.
        return httpx.request(method, self.url + path, json=body, **{"timeout": 60, "verify": False, **options})

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        response = self.ask("POST", path, body, **options)
        assert response.status_code == 200, response.text
        return response.json()

    def get(self, path: str, **options: Any) -> Any:
        response = self.ask("GET", path, **options)
        assert response.status_code == 200, response.text
        return response.json()

    def recommended(self, user: object, k: int = 50, **values: Any) -> list[Any]:
        return [one["item"] for one in self.post("/recommend", {"user": user, "k": k, **values})["items"]]


@contextmanager
def running(folder: Path, *line: str, env: dict[str, str] | None = None, installed: bool = False) -> Iterator[Running]:
    """Start a server on a free port, by the installed command or forked from a loaded process, and end it."""
    feedback = folder / "feedback"
    folder.mkdir(exist_ok=True)
    line = ("serve", *line, "--port", "0", "--feedback", str(feedback), "--workspace", str(folder))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **(env or {})}
    read, write = os.pipe()
    process: Process
    with (folder / "stderr.txt").open("a") as errors, Path(os.devnull).open() as nothing:
        if installed:
            process = subprocess.Popen([RECSYS, *line], stdout=write, stderr=errors, env=env)
        else:
            process = Forked(line, streams=(nothing.fileno(), write, errors.fileno()), env=env)
    os.close(write)
    output = os.fdopen(read)
    try:
        first = output.readline()
        assert first.startswith("http://"), f"{first}{(folder / 'stderr.txt').read_text()}"
        yield Running(process, first.split()[0], feedback)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        output.close()


def until(condition: Callable[[], object], *, seconds: float = 30.0, said: Callable[[], str] = str) -> float:
    """Wait for a condition, and return the seconds; after too many, fail with what was said."""
    started = time.perf_counter()
    while not condition():
        assert time.perf_counter() < started + seconds, said()
        time.sleep(0.005)
    return time.perf_counter() - started


def free_ports(count: int) -> list[int]:
    """Return free ports of loopback."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def left_by_ray() -> set[Path]:
    """Return sockets, logs and shared memory of Ray that no running process owns."""
    folders = {folder for folder in Path("/tmp").glob("recsys-ray-*") if not is_owned(folder)}
    return {*folders, *Path("/tmp").glob("ray/*"), *Path("/dev/shm").glob("plasma*")}


def is_owned(folder: Path) -> bool:
    with suppress(FileNotFoundError), (folder / "owner").open() as owner:
        try:
            fcntl.flock(owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
