"""The executor of clusters: parts in flight, results in order, retries after lost workers, whatever the scheduler."""

from __future__ import annotations

import logging
import os
import signal
import socket
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, Generic, TypeVar

from recsys_cli.cpu import cores
from recsys_cli.errors import RecsysError
from recsys_cli.events import Emit, Message
from recsys_cli.executors.checks import Checks, SharedFolder, check_shared

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
_ATTEMPTS = 4


class Lost(Exception):  # noqa: N818 - an outcome of a part
    """A part was lost with its worker, or with the copy of its task.

    Attributes:
        final: Whether the scheduler has repeated the part without success.
    """

    def __init__(self, reason: str = "", *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Scheduler(ABC):
    """A connection to a cluster; each method raises the error of `lost` if it broke.

    Attributes:
        name: Name or address of the cluster, as in the config.
        packages: Packages with the same release on every worker.
        is_local: Whether this process started the cluster.
        start: Says how to start a worker.
    """

    packages: tuple[str, ...]

    def __init__(self, name: str, *, is_local: bool, start: str) -> None:
        self.name = name
        self.is_local = is_local
        self.start = start

    @abstractmethod
    def workers(self) -> dict[str, int]:
        """Return the number of threads of each worker, by address."""

    @abstractmethod
    def inspect(self, checks: Checks) -> Mapping[str, Any]:
        """Return the state of each worker, or its error."""

    @abstractmethod
    def broadcast(self, task: Any) -> Any:
        """Send a task to every node once, and return its copy; OSError or TimeoutError if workers died in between."""

    @abstractmethod
    def submit(self, sent: Any, part: Any) -> Any:
        """Start `SharedTask.run` of a broadcast task, and return its future."""

    @abstractmethod
    def wait(self, futures: Sequence[Any], timeout: float) -> Sequence[Any]:
        """Wait until one of the futures is done, and return those that are; none after the timeout."""

    @abstractmethod
    def result(self, future: Any, timeout: float) -> Any:
        """Return the result of a future that is done; `Lost` if it has none."""

    @abstractmethod
    def cancel(self, futures: Sequence[Any]) -> None:
        """Cancel futures."""

    def lost(self) -> RecsysError:
        """Return the error for a lost scheduler."""
        kind = type(self).__name__.removesuffix("Scheduler")
        hint = "check its log; start it and its workers again, then repeat the command"
        return RecsysError(f"the {kind} scheduler of etl.cluster={self.name} is lost", hint=hint)


@dataclass(frozen=True)
class Failure:
    """An error as the return value of a task: schedulers would log a raised error on the worker."""

    error: Exception


@dataclass(frozen=True)
class SharedTask(Generic[Part, Result]):
    """A task, broadcast to all workers.

    Attributes:
        shared: The folder to check first.
        folder: The working directory of the driver, for relative paths.
    """

    task: Callable[[Part], Result]
    shared: SharedFolder
    folder: str = field(default_factory=os.getcwd)

    def run(self, part: Part) -> Result | Failure:
        """Run one part, possibly twice if a worker dies: the task is idempotent."""
        try:
            check_shared(self.shared)
            with suppress(OSError):
                os.chdir(self.folder)
            return self.task(part)
        except Exception as error:  # raised again in the process that waits for the result
            return Failure(_portable(error))


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
    """

    def __init__(self, scheduler: Scheduler, checks: Checks, emit: Emit) -> None:
        self.scheduler = scheduler
        self.checks = checks
        self.emit = emit
        self._no_workers_since: float | None = None
        self._checked = monotonic()
        self.threads = scheduler.workers()

    @property
    def facts(self) -> dict[str, Any]:
        """See `Executor.facts`."""
        return {"cluster": self.scheduler.name, "workers": len(self.threads), "threads": sum(self.threads.values())}

    def map(self, task: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the results of the parts, in order, with a few parts per worker thread in flight.

        Raises:
            RecsysError: All workers or the scheduler are lost, or a part killed every worker that tried it.
        """
        window = _Window(self, SharedTask(task, self.checks.shared))
        try:
            for part in parts:
                window.add(part)
                if len(window.ahead) >= _AHEAD * max(1, sum(self.threads.values())):
                    yield window.first()
            while window.ahead:
                yield window.first()
            self.check_workers()
        finally:
            with suppress(Exception):  # it must not hide an earlier error
                self.scheduler.cancel([pending.future for pending in window.ahead if not pending.is_done])

    def ready(self) -> None:
        """Wait for a first worker, then inspect all workers.

        Raises:
            RecsysError: There is no worker, or a worker has a problem; the message lists all problems.
        """
        self.wait()
        if problems := self.checks.problems(self.scheduler.inspect(self.checks)):
            raise RecsysError("\n".join(problems), hint="; ".join(dict.fromkeys(problems.values())))

    def wait(self) -> None:
        """Wait for a worker."""
        self.check_workers()
        while not self.threads:
            sleep(0.1)
            self.check_workers()

    def check_workers(self) -> None:
        """Update the list of workers, and warn about lost ones."""
        before, self.threads = self.threads, self.scheduler.workers()
        self._checked = monotonic()
        for address in before.keys() - self.threads.keys():
            self.report(f"worker {address} is lost")
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

    def report(self, loss: str) -> None:
        """Warn about a loss."""
        self.emit(Message(f"{loss}; other workers repeat its parts", "warning"))

    def gather(self, pending: Mapping[Any, _Pending[Any]]) -> None:
        """Wait a moment for parts by their futures, and keep the outcome of those that are done."""
        for future in self.scheduler.wait(list(pending), _TICK):
            with suppress(TimeoutError):  # its worker died before the transfer of the result
                try:
                    pending[future].outcome = self.scheduler.result(future, _TICK)
                except Lost as lost:
                    pending[future].outcome = lost
                pending[future].is_done = True
        if monotonic() - self._checked > _TICK:
            self.check_workers()


@dataclass
class _Pending(Generic[Part]):
    """A submitted part: the future of its result, its copy of the task, and its outcome."""

    part: Part
    future: Any
    sent: Any
    attempts: int = 1
    is_done: bool = False
    outcome: Any = None


class _Window(Generic[Part, Result]):
    """The parts in flight of a task that is broadcast to all workers, and again after the loss of a copy."""

    def __init__(self, cluster: Cluster, task: SharedTask[Part, Result]) -> None:
        self.ahead: deque[_Pending[Part]] = deque()
        self._cluster = cluster
        self._task = task
        self._sent: Any = None
        self._reported: set[str] = set()

    def add(self, part: Part) -> None:
        self.ahead.append(_Pending(part, *self._submit(part)))

    def first(self) -> Result:
        """Return the result of the first part, and gather those of others meanwhile."""
        while not self.ahead[0].is_done:
            waiting = {pending.future: pending for pending in self.ahead if not pending.is_done}
            self._cluster.gather(waiting)
            for pending in waiting.values():
                if isinstance(pending.outcome, Lost):
                    self._repeat(pending, pending.outcome)
        outcome: Result | Failure = self.ahead.popleft().outcome
        if isinstance(outcome, Failure):
            raise outcome.error
        return outcome

    def _submit(self, part: Part) -> tuple[Any, Any]:
        while self._sent is None:
            self._cluster.wait()
            with suppress(OSError, TimeoutError, ValueError):  # a worker died during the broadcast
                self._sent = self._cluster.scheduler.broadcast(self._task)
        return self._cluster.scheduler.submit(self._sent, part), self._sent

    def _repeat(self, pending: _Pending[Part], lost: Lost) -> None:
        if lost.final or pending.attempts == _ATTEMPTS:
            raise RecsysError(
                f"every worker that tried {pending.part} died: {lost or 'its copies of the task were lost'}",
                hint="the usual cause is lack of memory: run fewer workers per machine, or lower etl.shard_rows",
            )
        if str(lost) and str(lost) not in self._reported:
            self._reported.add(str(lost))
            self._cluster.report(str(lost))
        if pending.sent is self._sent:
            self._sent = None
        pending.future, pending.sent = self._submit(pending.part)
        pending.attempts, pending.is_done, pending.outcome = pending.attempts + 1, False, None


def polars_threads(workers: int | None) -> str:
    """Return the threads of Polars in each local worker: it would use all cores in each process."""
    return str(max(1, cores() // (workers or cores())))


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Start threads and processes with SIGINT blocked: the process that starts them also stops them.

    A terminal sends Ctrl-C to all processes, and each worker would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
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
