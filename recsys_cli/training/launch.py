"""Launcher of the worker processes of a run on this machine, with the environment variables of torchrun.

Unlike torchrun, it forwards events to the caller, raises the error of the first failed rank, and on Ctrl-C stops all
workers between two steps.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import IO, Any, TextIO

import torch
from torch.distributed import TCPStore

from recsys_cli import errors
from recsys_cli.errors import RecsysError, Terminated, TrainingError
from recsys_cli.events import Emit, Event, Message, Progress

_EVENTS = {"message": Message, "progress": Progress}


def line(kind: str, **values: Any) -> str:
    """Encode a kind and its values as a line."""
    return json.dumps([kind, values], default=str)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Decode a line into its kind and values; a `ValueError` for other text."""
    kind, values = json.loads(text)
    return kind, values


def event_line(event: Event) -> str:
    """Encode an event as a line."""
    return line("message" if isinstance(event, Message) else "progress", **asdict(event))


def error_line(error: Exception) -> str:
    """Encode an error and its traceback as a line."""
    text = "".join(traceback.format_exception(error))
    if isinstance(error, RecsysError):
        return line("error", type=type(error).__name__, message=error.message, hint=error.hint, traceback=text)
    if isinstance(error, OSError) and error.strerror:
        return line("error", errno=error.errno, message=error.strerror, filename=error.filename, traceback=text)
    return line("error", message=f"{type(error).__name__}: {error}", traceback=text)


def error_of(values: dict[str, Any], *, rank: int) -> Exception:
    """Decode an error of a rank into an exception for the parent process."""
    if "errno" in values:
        error: Exception = OSError(values["errno"], values["message"], values["filename"])
    elif "hint" in values:
        kind = getattr(errors, values["type"], TrainingError)
        error = kind(values["message"], hint=values["hint"])
    else:
        error = RuntimeError(f"rank {rank}: {values['message']}")
    error.add_note(f"in rank {rank}:\n{values['traceback']}")
    return error


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Defer the first Ctrl-C of a block; the second one interrupts at once.

    SIGTERM (torchrun, Slurm, Kubernetes) and SIGHUP (a lost connection) count as a first Ctrl-C and never interrupt at
    once. An ignored SIGHUP, as under nohup, stays ignored.

    Yields:
        A function that returns whether there was an interrupt; always False outside the main thread.

    Raises:
        Terminated: A `KeyboardInterrupt` of the block after SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received: set[int] = set()

    def handle(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        received.add(number)

    handled = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handle) for number in handled}
    try:
        yield lambda: bool(received)
    except KeyboardInterrupt:
        if signal.SIGTERM in received:
            raise Terminated from None
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


INTERRUPTED = 130
"""Exit code of an interrupted worker; the signal itself ends one that is already at its end."""
_INTERRUPTED = (INTERRUPTED, -signal.SIGINT)
_HERE = "127.0.0.1"
_POLL = 0.2
"""Seconds between checks for ended workers."""
_GRACE = 30.0
"""Seconds for the other workers to end after a failure."""
_SAVING = 600.0
"""Seconds for a worker with messages after the failure, such as one at a checkpoint."""
_READING = 5.0
"""Seconds to wait for the last lines of an ended worker, because a fork of it may hold the pipe."""
_LINES = 40
"""Number of stderr lines in the error of a worker that ends without an error message."""


@dataclass
class _Worker:
    """A worker process, with reader threads on its stdout and stderr.

    Attributes:
        error: Reported error, at the time `failed`.
        is_secondary: Whether the error is only the loss of another rank.
        killed: Whether the launcher killed it.
        stderr: Last lines of its stderr.
    """

    rank: int
    popen: subprocess.Popen[str]
    readers: list[threading.Thread] = field(default_factory=list)
    error: Exception | None = None
    failed: float | None = None
    is_secondary: bool = False
    last_message: float = 0.0
    killed: bool = False
    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))

    @property
    def died(self) -> bool:
        return not self.killed and self.popen.poll() not in (None, 0, *_INTERRUPTED)

    def exit_error(self) -> TrainingError:
        code = self.popen.returncode
        cause, hint = f"ended with code {code}", "continue from the last checkpoint with `recsys train --resume`"
        if code < 0:
            names = {number.value: number.name for number in signal.Signals}
            cause = f"was killed by {names.get(-code, f'signal {-code}')}"
            hint = "check the memory, because the kernel may have killed it; continue with `recsys train --resume`"
        wrote = "".join(self.stderr).strip()
        return TrainingError(f"rank {self.rank} {cause}" + (f"; it wrote:\n{wrote}" if wrote else ""), hint=hint)


_Messages = queue.Queue[tuple[_Worker, str, dict[str, Any]]]


def launch(module: str, job: Mapping[str, Any], *, devices: int, emit: Emit) -> None:
    """Run `python -m module` in several worker processes until all of them end.

    Each worker reads its job, one line of JSON, from stdin, and writes lines of `line` to stdout. The end of stdin, on
    Ctrl-C or the end of this process, interrupts the worker (`worker_session`).

    Raises:
        RecsysError: Error of the first failed rank, or its exit without an error message.
        KeyboardInterrupt: Ctrl-C; all workers have stopped.
    """
    # The rendezvous store lives in this process and so outlives every worker.
    store = TCPStore(_HERE, 0, is_master=True, wait_for_workers=False)
    messages: _Messages = queue.Queue()
    workers: list[_Worker] = []
    with deferred_interrupt() as interrupted:
        try:
            for rank in range(devices):
                workers.append(_start(module, line("job", **job), rank, devices, store.port))
                _read_output(workers[-1], messages)
            _forward_messages(workers, messages, emit, interrupted)
        finally:
            for worker in workers:
                _kill(worker)
        if error := _cause(workers, interrupted=interrupted()):
            raise error


@contextmanager
def worker_session() -> Iterator[tuple[dict[str, Any], TextIO]]:
    """Run a block as a worker of `launch`; the end of stdin, or of the launcher, counts as Ctrl-C.

    Yields:
        The job and the stream for lines of `line`. Other output to stdout goes to stderr.
    """
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs of a shell
    _, job = parse(sys.stdin.readline())

    def wait_for_the_end() -> None:
        os.read(0, 1)  # not sys.stdin, whose lock would block the shutdown of the interpreter
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    yield job, out


def _start(module: str, job: str, rank: int, devices: int, port: int) -> _Worker:
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
        "PYTHONPATH": os.pathsep.join(sys.path),  # makes a user's own model importable in the worker
    }
    popen = subprocess.Popen(  # noqa: S603 - this interpreter and a module of this package
        # -P keeps the working directory off sys.path. In a new session, Ctrl-C reaches only the launcher.
        [sys.executable, "-P", "-m", module], env=environment, text=True, encoding="utf-8", errors="replace",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    worker = _Worker(rank, popen)
    with suppress(BrokenPipeError):  # an early exit is handled later
        _pipe(popen.stdin).write(job + "\n")
        _pipe(popen.stdin).flush()
    return worker


def _read_output(worker: _Worker, messages: _Messages) -> None:
    def lines() -> None:
        with _pipe(worker.popen.stdout) as stream:
            for text in stream:
                try:
                    messages.put((worker, *parse(text)))
                except ValueError:
                    worker.stderr.append(text)

    def errors() -> None:
        with _pipe(worker.popen.stderr) as stream:
            worker.stderr.extend(stream)

    worker.readers = [threading.Thread(target=target, daemon=True) for target in (lines, errors)]
    for reader in worker.readers:
        reader.start()


def _forward_messages(workers: list[_Worker], messages: _Messages, emit: Emit, interrupted: Callable[[], bool]) -> None:
    """Forward messages until all workers have ended."""
    failed = 0.0
    while any(worker.popen.poll() is None for worker in workers):
        with suppress(queue.Empty):
            _handle(*messages.get(timeout=_POLL), emit)
        if interrupted():
            for worker in workers:
                _close(worker)
        if not failed and any(worker.failed or worker.died for worker in workers):
            failed = time.monotonic()
        if failed:
            _kill_late(workers, since=failed)
    for reader in (reader for worker in workers for reader in worker.readers):
        reader.join(_READING)
    while not messages.empty():
        _handle(*messages.get(), emit)


def _handle(worker: _Worker, kind: str, values: dict[str, Any], emit: Emit) -> None:
    worker.last_message = time.monotonic()
    if kind == "error":
        worker.error, worker.failed = error_of(values, rank=worker.rank), worker.last_message
        worker.is_secondary = values.get("type") == "LostRankError"
    elif kind in _EVENTS:
        emit(_EVENTS[kind](**values))


def _kill_late(workers: list[_Worker], *, since: float) -> None:
    now = time.monotonic()
    for worker in workers:
        if now > (since + _GRACE if worker.last_message <= since else worker.last_message + _SAVING):
            _kill(worker)


def _cause(workers: list[_Worker], *, interrupted: bool) -> BaseException | None:
    """Return the error to raise, or None; the loss of another rank comes last, because it is only a consequence."""
    failed = sorted((one for one in workers if one.error), key=lambda one: (one.is_secondary, one.failed or 0))
    if failed and not failed[0].is_secondary:
        return failed[0].error
    for worker in workers:
        if worker.died and not worker.error:
            return worker.exit_error()
    if interrupted or any(worker.popen.returncode in _INTERRUPTED for worker in workers):
        return KeyboardInterrupt() if any(worker.popen.returncode for worker in workers) else None
    return failed[0].error if failed else None


def _kill(worker: _Worker) -> None:
    _close(worker)
    if worker.popen.poll() is None:
        worker.killed = True
        worker.popen.kill()
        worker.popen.wait()


def _close(worker: _Worker) -> None:
    with suppress(BrokenPipeError):
        _pipe(worker.popen.stdin).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # Popen opens it with PIPE
    return stream
