"""Start the processes of a run on this machine, pass on what they tell, and see that all of them end, however one ends.

For the processes it is as if torchrun had started them. What torchrun does not have: events come to the caller, the error
that is raised is that of the rank that failed first, and Ctrl-C stops all of them between two steps.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any, TextIO

import torch
from torch.distributed import TCPStore

from recsys_cli.errors import TrainingError
from recsys_cli.events import Emit
from recsys_cli.training.distributed import wire
from recsys_cli.training.interrupt import deferred_interrupt

INTERRUPTED = 130
"""The exit code of a process that stopped because it was asked to."""
_HERE = "127.0.0.1"
_POLL = 0.2
"""Seconds between two looks at whether a process has ended."""
_GRACE = 30.0
"""Seconds that the others have to end after one failed."""
_SAVING = 600.0
"""The same, for one that said since then that it is still at work."""
_READING = 5.0
"""Seconds to wait for the last lines of a process that has ended; one that it forked may hold the pipe."""
_LINES = 40
"""How much is kept of what a process writes to stderr, to show where it ends without a word."""


@dataclass
class _Process:
    """One of the processes.

    Attributes:
        rank: Its number.
        popen: The process.
        readers: Threads that read what it writes.
        error: What it said when it failed.
        failed: When it said so.
        lost: Whether that was only that another one is gone.
        heard: When it last said something.
        killed: Whether it was ended from here.
        stderr: The last lines that it wrote.
    """

    rank: int
    popen: subprocess.Popen[str]
    readers: list[threading.Thread] = field(default_factory=list)
    error: Exception | None = None
    failed: float | None = None
    lost: bool = False
    heard: float = 0.0
    killed: bool = False
    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))

    @property
    def died(self) -> bool:
        """Whether it ended by itself, in another way than well or as it was asked to."""
        return not self.killed and self.popen.poll() not in (None, 0, INTERRUPTED)

    def last_words(self) -> TrainingError:
        """Return what there is to say of a process that ended without saying why."""
        code = self.popen.returncode
        how, hint = f"ended with code {code}", "recsys train --resume goes on from the last checkpoint"
        if code < 0:
            names = {number.value: number.name for number in signal.Signals}
            how = f"was killed by {names.get(-code, f'signal {-code}')}"
            hint = "look at the memory: the system kills who takes too much; recsys train --resume goes on"
        wrote = "".join(self.stderr).strip()
        return TrainingError(f"rank {self.rank} {how}" + (f"; it wrote:\n{wrote}" if wrote else ""), hint=hint)


_Said = queue.Queue[tuple[_Process, str, dict[str, Any]]]


def launch(module: str, job: Mapping[str, Any], *, devices: int, emit: Emit) -> None:
    """Run `python -m module` in so many processes until all of them are done.

    Each reads its job, one line of JSON, from stdin, and writes lines of `wire` to stdout. The end of stdin, which comes
    with Ctrl-C here and with the end of this process, asks it to stop; see `served`.

    Args:
        module: What to run.
        job: What to do; plain values.
        devices: How many processes, which is how many GPUs where it is GPUs.
        emit: Is told what the processes tell.

    Raises:
        RecsysError: What the rank that failed first said; or that it ended without a word.
        KeyboardInterrupt: There was a Ctrl-C, and all have stopped.
    """
    # The store through which they meet outlives any of them, because it is here.
    store = TCPStore(_HERE, 0, is_master=True, wait_for_workers=False)
    said: _Said = queue.Queue()
    processes: list[_Process] = []
    try:
        for rank in range(devices):
            processes.append(_start(module, wire.line("job", **job), rank, devices, store.port))
            _listen(processes[-1], said)
        interrupted = _watch(processes, said, emit)
    finally:
        for process in processes:
            _kill(process)
    if error := _cause(processes, interrupted=interrupted):
        raise error


@contextmanager
def served() -> Iterator[tuple[dict[str, Any], TextIO]]:
    """Be one of the processes that `launch` starts: give the job, and where to write lines.

    What else writes to stdout goes to stderr. When whoever started this ends stdin, or ends, it is as if Ctrl-C came.
    """
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which is off in what a shell runs in the background
    _, job = wire.parse(sys.stdin.readline())

    def wait_for_the_end() -> None:
        os.read(0, 1)  # not through sys.stdin, whose lock the end of the interpreter would find taken
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    yield job, told


def _start(module: str, job: str, rank: int, devices: int, port: int) -> _Process:
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(devices),
        "LOCAL_WORLD_SIZE": str(devices),
        "MASTER_ADDR": _HERE,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is not on rank 0
        "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // devices)),
        "PYTHONPATH": os.pathsep.join(sys.path),  # a model of the user's own is found there as it is found here
    }
    popen = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of ours
        # -P: not what happens to lie in the working directory. A session of its own: Ctrl-C comes through here alone.
        [sys.executable, "-P", "-m", module], env=environment, text=True, encoding="utf-8", errors="replace",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    process = _Process(rank, popen)
    with suppress(BrokenPipeError):  # it has ended already, and how is seen later
        _pipe(popen.stdin).write(job + "\n")
        _pipe(popen.stdin).flush()
    return process


def _listen(process: _Process, said: _Said) -> None:
    """Read what a process writes, in two threads."""

    def lines() -> None:
        with _pipe(process.popen.stdout) as stream:
            for text in stream:
                try:
                    said.put((process, *wire.parse(text)))
                except ValueError:
                    process.stderr.append(text)

    def errors() -> None:
        with _pipe(process.popen.stderr) as stream:
            process.stderr.extend(stream)

    process.readers = [threading.Thread(target=target, daemon=True) for target in (lines, errors)]
    for reader in process.readers:
        reader.start()


def _watch(processes: list[_Process], said: _Said, emit: Emit) -> bool:
    """Pass on what is said until all processes have ended; whether they were asked to."""
    failed = 0.0
    with deferred_interrupt() as interrupted:
        while any(process.popen.poll() is None for process in processes):
            with suppress(queue.Empty):
                _hear(*said.get(timeout=_POLL), emit)
            if interrupted():
                for process in processes:
                    _close(process)
            if not failed and any(process.failed or process.died for process in processes):
                failed = time.monotonic()
            if failed:
                _kill_late(processes, since=failed)
    for reader in (reader for process in processes for reader in process.readers):
        reader.join(_READING)
    while not said.empty():
        _hear(*said.get(), emit)
    return interrupted()


def _hear(process: _Process, kind: str, values: dict[str, Any], emit: Emit) -> None:
    process.heard = time.monotonic()
    if kind == "error":
        process.error, process.failed = wire.error_of(values, rank=process.rank), process.heard
        process.lost = values.get("type") == "LostRankError"
    elif (event := wire.event_of(kind, values)) is not None:
        emit(event)


def _kill_late(processes: list[_Process], *, since: float) -> None:
    """Kill who is still there some time after one failed."""
    now = time.monotonic()
    for process in processes:
        if now > (since + _GRACE if process.heard <= since else process.heard + _SAVING):
            _kill(process)


def _cause(processes: list[_Process], *, interrupted: bool) -> BaseException | None:
    """Return what to raise: that another rank is gone is the least of what there is to say."""
    failed = sorted((one for one in processes if one.error), key=lambda one: one.failed or 0)
    for process in failed:
        if not process.lost:
            return process.error
    for process in processes:
        if process.died and not process.error:
            return process.last_words()
    if interrupted or any(process.popen.returncode == INTERRUPTED for process in processes):
        return KeyboardInterrupt() if any(process.popen.returncode for process in processes) else None
    return failed[0].error if failed else None


def _kill(process: _Process) -> None:
    _close(process)
    if process.popen.poll() is None:
        process.killed = True
        process.popen.kill()
        process.popen.wait()


def _close(process: _Process) -> None:
    with suppress(BrokenPipeError):
        _pipe(process.popen.stdin).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # Popen was told to make it
    return stream
