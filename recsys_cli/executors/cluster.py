"""The executor of clusters: parts in flight, results in order, retries after lost workers, whatever the scheduler."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Generic, NamedTuple, TypeVar

from recsys_cli.cpu import cores
from recsys_cli.errors import RecsysError
from recsys_cli.events import Emit, Message
from recsys_cli.executors.checks import Checks, check_this

Part = TypeVar("Part")
Result = TypeVar("Result")

CONNECT_TIMEOUT = 10.0
"""Timeout of a connection to the scheduler, in seconds."""
WORKER_TIMEOUT = 15.0
"""Seconds to wait for a first or a replacement worker of an external cluster."""
LOCAL_WORKER_TIMEOUT = 60.0
"""The same for a local cluster, where this process restarts workers."""
_TICK = 1.0
_AHEAD = 3


class Lost(Exception):  # noqa: N818 - an outcome of a part
    """A part was lost with its worker."""


class Scheduler(ABC):
    """A connection to a cluster; each method raises the error of `lost` if it broke.

    Attributes:
        name: Name or address of the cluster, as in the config.
        kind: Name of the software.
        packages: Packages with the same release on every worker.
        attempts: How often to run a lost part; 1 if the scheduler itself repeats it.
        is_local: Whether this process started the cluster.
        start: Says how to start a worker.
    """

    kind: str
    packages: tuple[str, ...]
    attempts: int

    def __init__(self, name: str, *, is_local: bool, start: str) -> None:
        self.name = name
        self.is_local = is_local
        self.start = start

    @abstractmethod
    def workers(self) -> dict[str, int]:
        """Return the number of threads of each worker, by address."""

    @abstractmethod
    def inspect(self, checks: Checks) -> Mapping[str, Any]:
        """Return the problems of each worker, or the error of its inspection."""

    @abstractmethod
    def broadcast(self, task: SharedTask[Any, Any]) -> Callable[[Any], Any]:
        """Send a task to every node once; return a function that runs a part by it, and returns a future."""

    @abstractmethod
    def result(self, future: Any, timeout: float) -> Outcome:
        """Return the result of a future; `Lost` if it will have none, TimeoutError if it has none yet."""

    @abstractmethod
    def cancel(self, futures: Sequence[Any]) -> None:
        """Cancel futures."""

    def lost(self) -> RecsysError:
        """Return the error for a lost scheduler."""
        hint = "check its log; start it and its workers again, then repeat the command"
        return RecsysError(f"the {self.kind} scheduler of etl.cluster={self.name} is lost", hint=hint)


class Outcome(NamedTuple):
    """The result of a part, or its error: schedulers would log a raised error on the worker."""

    result: Any
    error: Exception | None = None


@dataclass(frozen=True)
class SharedTask(Generic[Part, Result]):
    """A task with the checks of its worker, broadcast to all workers.

    Attributes:
        folder: The working directory of the driver, for a task with relative paths; None without.
    """

    task: Callable[[Part], Result]
    checks: Checks
    folder: Path | None = None

    def run(self, part: Part) -> Outcome:
        """Run one part, possibly twice if a worker dies: the task is idempotent."""
        try:
            check_this(self.checks)
            with nullcontext() if self.folder is None else _FOLDER.working_in(self.folder):
                return Outcome(self.task(part))
        except Exception as error:  # raised again in the process that waits for the result
            return Outcome(None, _portable(error))


class _Folder:
    """The working directory of this process; parts with different ones take turns, as threads share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._folder: Path | None = None
        self._num_parts = 0

    @contextmanager
    def working_in(self, folder: Path) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._num_parts or self._folder == folder)
            self._folder = folder
            with suppress(OSError):  # absolute paths need no folder
                os.chdir(folder)
            self._num_parts += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_parts -= 1
                self._changed.notify_all()


_FOLDER = _Folder()


def _portable(error: Exception) -> Exception:
    """Return an error that any process can unpickle and raise, with its traceback as a note."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, RecsysError) and type(error).__module__ != "builtins":
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"on {socket.gethostname()}:\n{text}")
    return error


class Cluster:
    """Runs tasks on the workers of a cluster.

    Other workers repeat the parts of a lost worker, so a part may run twice.

    Attributes:
        folder: The working directory of the tasks, on every worker; None for that of the worker.
    """

    def __init__(self, scheduler: Scheduler, checks: Checks, emit: Emit) -> None:
        self.scheduler = scheduler
        self.checks = checks
        self.folder: Path | None = None
        self._emit = emit
        self._no_workers_since: float | None = None
        self._checked = monotonic()
        self.threads = scheduler.workers()

    @property
    def facts(self) -> dict[str, Any]:
        """See `Executor.facts`."""
        return {"cluster": self.scheduler.name, "workers": len(self.threads), "threads": sum(self.threads.values())}

    def inspect(self) -> None:
        """Wait for a first worker, then check all workers.

        Raises:
            RecsysError: There is no worker, or a worker has a problem.
        """
        self._wait()
        self.checks.check(self.scheduler.inspect(self.checks))

    def map(self, task: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the results of the parts, in order, with a few parts per worker thread in flight.

        Raises:
            RecsysError: All workers or the scheduler are lost, or a part killed every worker that tried it.
        """
        self._wait()
        run = self.scheduler.broadcast(SharedTask(task, self.checks, self.folder))
        ahead: deque[tuple[Part, Any]] = deque()
        reported: set[str] = set()
        try:
            for part in parts:
                ahead.append((part, run(part)))
                if len(ahead) >= _AHEAD * max(1, sum(self.threads.values())):
                    yield self._first(ahead, run, reported)
            while ahead:
                yield self._first(ahead, run, reported)
            self.check_workers()
        finally:
            with suppress(Exception):  # it must not hide an earlier error
                self.scheduler.cancel([future for _, future in ahead])

    def _first(self, ahead: deque[tuple[Part, Any]], run: Callable[[Part], Any], reported: set[str]) -> Any:
        """Return the result of the first part; run it again if it is lost with its worker."""
        attempts = 1
        while True:
            part, future = ahead[0]
            self.check_workers(age=_TICK)
            try:
                outcome = self.scheduler.result(future, _TICK)
                break
            except TimeoutError:  # it runs, or its worker died before the transfer of the result
                continue
            except Lost as lost:
                if attempts == self.scheduler.attempts:
                    raise RecsysError(
                        f"every worker that tried {part} died: {lost}",
                        hint="the usual cause is lack of memory: run fewer workers per machine, or lower etl.shard_rows",
                    ) from lost
                if str(lost) not in reported:
                    reported.add(str(lost))
                    self._report(str(lost))
                attempts += 1
                ahead[0] = part, run(part)
        ahead.popleft()
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    def _wait(self) -> None:
        self.check_workers()
        while not self.threads:
            sleep(0.1)
            self.check_workers()

    def check_workers(self, *, age: float = 0) -> None:
        """Update a list of workers of more than that age, in seconds, and warn about lost ones."""
        if monotonic() - self._checked < age:
            return
        before, self.threads = self.threads, self.scheduler.workers()
        self._checked = monotonic()
        for address in before.keys() - self.threads.keys():
            self._report(f"worker {address} is lost")
        if self.threads:
            self._no_workers_since = None
            return
        self._no_workers_since = self._no_workers_since or monotonic()
        timeout = LOCAL_WORKER_TIMEOUT if self.scheduler.is_local else WORKER_TIMEOUT
        if monotonic() - self._no_workers_since > timeout:
            memory = "check for lack of memory; fewer etl.workers need less"
            raise RecsysError(
                f"etl.cluster={self.scheduler.name} has had no worker for {timeout:.0f} s",
                hint=memory if self.scheduler.is_local else self.scheduler.start,
            )

    def _report(self, loss: str) -> None:
        self._emit(Message(f"{loss}; other workers repeat its parts", "warning"))


def polars_threads(workers: int | None) -> str:
    """Return the threads of Polars in each local worker: it would use all cores in each process."""
    return str(max(1, cores() // (workers or cores())))


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Start threads and processes with SIGINT blocked: the process that starts them also stops them.

    A terminal sends Ctrl-C to all processes, and each worker would print a traceback.
    """
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # otherwise its first user starts it, without the blocked signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def quiet_logs(package: str) -> Iterator[None]:
    """Mute the logs of an imported package: errors and events have all messages for the user."""
    names = [package, *(name for name in logging.root.manager.loggerDict if name.partition(".")[0] == package)]
    levels = {name: logging.getLogger(name).level for name in names}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
