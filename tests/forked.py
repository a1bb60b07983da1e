"""`recsys` as a process of its own, forked from one that has loaded everything: a command costs its work and no imports.

The installed command runs in `tests/e2e/test_pipeline.py` and `tests/e2e/test_wheel.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 1 << 17
"""Bytes of the line and the environment of a command."""
LAUNCHER = """\
#!{python} -IS
import sys
sys.path.append({root!r})
from tests.forked import Forked
sys.exit(Forked(sys.argv[1:], streams=(0, 1, 2), address={address!r}).forward())
"""


class Forked:
    """A command at work, with the methods of `subprocess.Popen`.

    Args:
        line: The words behind `recsys`.
        streams: Its stdin, stdout and stderr.
        cwd: Its working directory; that of this process by default.
        env: Its environment; that of this process by default.
        address: Of the process to fork; that of this session by default.
    """

    def __init__(
        self,
        line: Sequence[str],
        *,
        streams: Sequence[int],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        address: str | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._parent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._parent.connect(address or loaded())
        request = [list(line), str(cwd or Path.cwd()), dict(os.environ if env is None else env)]
        socket.send_fds(self._parent, [json.dumps(request).encode()], streams)
        self.pid = int(self._parent.recv(20))

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._parent], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._parent], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("recsys", timeout or 0)
            self.returncode = int(self._parent.recv(20))
            self._parent.close()
        return self.returncode

    def forward(self) -> int:
        """Hand signals on to the command, and end as it does."""
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: self.send_signal(number))
        if (code := self.wait()) < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        return code


@functools.cache
def program() -> Path:
    """Write a program `recsys` that runs its line as a forked command, once per session; return its path."""
    path = Path(loaded()).with_name("recsys")
    path.write_text(LAUNCHER.format(python=sys.executable, root=str(ROOT), address=loaded()))
    path.chmod(0o755)
    return path


@functools.cache
def loaded() -> str:
    """Start the process to fork, once per session; return its address."""
    address = f"{tempfile.mkdtemp(prefix='recsys-forked-')}/socket"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forked", address], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(process.wait)
    atexit.register(process.kill)
    return address


def main() -> None:
    """Load everything, and fork for each line that comes, until the session ends."""
    importlib.import_module("scripts.soak.arena").preload()
    sys.path.remove(str(ROOT))  # as for the installed command
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(sys.argv[1])
        listening.listen(64)
        os.write(1, b"ready\n")
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                return _keep(connection)
            connection.close()


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(connection: socket.socket) -> None:
    """Run a line in a process below, and report its id and its end; kill it when nobody listens."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams, *_ = socket.recv_fds(connection, LARGEST, 3)
    pid = os.fork()
    if pid == 0:
        connection.close()
        return _type(streams, *json.loads(request))
    for stream in streams:
        os.close(stream)
    connection.send(b"%d" % pid)

    def kill() -> None:
        if not connection.recv(1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.send(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _type(streams: Sequence[int], line: Sequence[str], folder: str, environment: Mapping[str, str]) -> None:
    for number, (name, stream) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
        os.dup2(stream, number)
        setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    os.closerange(3, max(*streams, 3) + 1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = ["recsys", *line]
    program = sys.modules["__main__"] = importlib.import_module("recsys_cli.__main__")
    code = 0
    try:
        program.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without the end of all that is loaded


if __name__ == "__main__":
    main()
