"""Parts of the work on a Dask cluster: how one is started or found, and what is done when workers die."""

from __future__ import annotations

import logging
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Generic, TypeVar

from recsys_cli.config import EtlConfig
from recsys_cli.cpu import cores
from recsys_cli.errors import RecsysError
from recsys_cli.etl.engine import Engine
from recsys_cli.etl.engines import missing_of_cluster
from recsys_cli.etl.workers import Failure, Meeting, Work, do
from recsys_cli.events import Emit, Message

Part = TypeVar("Part")
Result = TypeVar("Result")

CONNECT = 10.0
"""Seconds in which a scheduler has to answer."""
PATIENCE = 15.0
"""Seconds to wait for a worker where there is none: whatever watches over it needs some to start another."""
_PATIENCE_HERE = 60.0
"""The same where this process watches over the workers, and so knows that others are on their way."""
_TICK = 1.0
_AHEAD = 3
_ATTEMPTS = 4


class Cluster:
    """Runs tasks on the workers of a Dask cluster.

    A task is sent to every worker once, then only numbers of parts travel. Parts of a worker that dies are done again
    by the others; that is why a task may do a part twice.
    """

    def __init__(self, name: str, client: Any, meeting: Meeting, emit: Emit) -> None:
        self.name = name
        self.client = client
        self.meeting = meeting
        self.emit = emit
        self._alone_since: float | None = None
        self.threads = self._workers()

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says of where the work was done."""
        return {"cluster": self.name, "workers": len(self.threads), "threads": sum(self.threads.values())}

    def map(self, task: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the task's result for each part, in order; each thread of a worker has a few parts before it.

        Raises:
            RecsysError: No worker is left, the scheduler is gone, or a part killed every worker that tried it.
        """
        shared = _Shared(self, Work(task, self.meeting))
        ahead: deque[_Pending[Part]] = deque()
        try:
            for part in parts:
                ahead.append(shared.submit(part))
                if len(ahead) >= _AHEAD * max(1, sum(self.threads.values())):
                    yield shared.result(ahead.popleft())
            while ahead:
                yield shared.result(ahead.popleft())
            self.look()
        finally:
            with suppress(Exception):  # what went wrong before is what matters
                self.client.cancel([pending.future for pending in ahead], force=True)

    def ready(self, engine: Engine) -> None:
        """Wait for a first worker, then look at all of them before there is any work.

        Raises:
            RecsysError: There is none, or one cannot do the work; all that is wrong is named.
        """
        self.wait()
        try:
            seen = self.client.run(self.meeting.look, engine, on_error="return")
        except OSError as error:
            raise self.gone() from error
        if problems := self.meeting.problems(seen):
            raise RecsysError("\n".join(problems), hint="; ".join(dict.fromkeys(problems.values())))

    def wait(self) -> None:
        """Wait until there is a worker.

        Raises:
            RecsysError: None came in a while.
        """
        self.look()
        while not self.threads:
            sleep(0.1)
            self.look()

    def look(self) -> None:
        """Tell of workers that are gone, and give up when there was none for a while.

        Raises:
            RecsysError: Nobody is left to do the work.
        """
        before, self.threads = self.threads, self._workers()
        for address in before.keys() - self.threads.keys():
            self.emit(Message(f"worker {address} is gone; what it had to do is done by the others", "warning"))
        if self.threads:
            self._alone_since = None
            return
        self._alone_since = self._alone_since or monotonic()
        is_here = self.client.cluster is not None
        patience = _PATIENCE_HERE if is_here else PATIENCE
        if monotonic() - self._alone_since > patience:
            address = self.client.scheduler.address
            elsewhere = f"dask worker {address}, where this recsys-cli is installed and the workspace is mounted"
            raise RecsysError(
                f"the Dask scheduler {address} has had no worker for {patience:.0f} s",
                hint="look whether memory ran out; fewer etl.workers need less" if is_here else elsewhere,
            )

    def _workers(self) -> dict[str, int]:
        """Return how many threads each worker has."""
        try:
            return dict(self.client.nthreads())
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self.gone() from error

    def gone(self) -> RecsysError:
        """Return the error for a scheduler that answers no more."""
        hint = "look at its log; start it and its workers again, then run the same command"
        return RecsysError(f"the Dask scheduler of etl.cluster={self.name} is gone", hint=hint)


@dataclass(frozen=True)
class _Pending(Generic[Part]):
    """A part that somebody has to do.

    Attributes:
        part: Which.
        future: Its result.
        work: The copy of the task on the workers that it needs.
    """

    part: Part
    future: Any
    work: Any


class _Shared(Generic[Part, Result]):
    """A task on the workers: sent to all that are there, and again when all that had it are gone."""

    def __init__(self, cluster: Cluster, work: Work[Part, Result]) -> None:
        self._cluster = cluster
        self._work = work
        self._sent: Any = None

    def submit(self, part: Part) -> _Pending[Part]:
        if self._sent is None:
            self._sent = self._send()
        return _Pending(part, self._cluster.client.submit(do, self._sent, part, pure=False), self._sent)

    def result(self, pending: _Pending[Part]) -> Result:
        """Wait for a part; have it done again where the task was lost with the workers that had it."""
        from distributed import CancelledError, KilledWorker

        for _ in range(_ATTEMPTS):
            try:
                found: Result | Failure = self._wait(pending.future)
            except KilledWorker as error:
                raise RecsysError(
                    f"every worker that tried {pending.part} died: {error}",
                    hint="most often for want of memory: fewer workers on a machine, or a smaller etl.shard_rows",
                ) from error
            except CancelledError as error:
                if self._cluster.client.status != "running":
                    raise self._cluster.gone() from error
                if pending.work is self._sent:
                    self._sent = None
                pending = self.submit(pending.part)
                continue
            if isinstance(found, Failure):
                raise found.error
            return found
        raise RecsysError(f"the workers of {self._cluster.name} were lost {_ATTEMPTS} times", hint="look at their logs")

    def _wait(self, future: Any) -> Any:
        while True:
            try:
                return future.result(timeout=_TICK)
            except TimeoutError:
                self._cluster.look()
            except OSError as error:  # the connection broke while the result was on its way from the scheduler
                raise self._cluster.gone() from error

    def _send(self) -> Any:
        while True:
            self._cluster.wait()
            with suppress(OSError, TimeoutError, ValueError):  # a worker died while it was being sent
                return self._cluster.client.scatter(self._work, broadcast=True, hash=False, timeout=CONNECT)


@contextmanager
def open_cluster(config: EtlConfig, engine: Engine, scratch: Path, emit: Emit) -> Iterator[Cluster]:
    """Start a cluster on this machine, or connect to one; at the end nothing of it is left here.

    Args:
        config: `cluster` says which, `workers` how large.
        engine: What will compute on the workers.
        scratch: A folder that every worker has to see.
        emit: Told of workers that are gone.

    Raises:
        MissingExtraError: Dask is not installed.
        RecsysError: Nobody answers, or a worker cannot do the work.
    """
    assert config.cluster is not None
    if (error := missing_of_cluster(config.cluster)) is not None:
        raise error
    with _silent(), ExitStack() as stack:
        import dask

        stack.enter_context(dask.config.set({"distributed.comm.timeouts.connect": CONNECT}))
        where = stack.enter_context(_started(config, scratch)) if config.cluster.startswith("local") else config.cluster
        client = stack.enter_context(_client(where))
        cluster = Cluster(config.cluster, client, Meeting.at(scratch / "meeting"), emit)
        cluster.ready(engine)
        yield cluster


def _client(where: Any) -> Any:
    """Connect to a cluster that was started here, or to an address."""
    from distributed import Client

    try:
        with warnings.catch_warnings():
            # Other releases on the other side: the workers are asked for theirs, and that is an error.
            warnings.filterwarnings("ignore", message=r"(?s).*Mismatched versions found")
            return Client(where, set_as_default=False, timeout=CONNECT)
    except (OSError, TimeoutError, ValueError) as error:
        raise RecsysError(
            f"no Dask scheduler answers at {where}: {error}", hint="start one with: dask scheduler"
        ) from error


@contextmanager
def _started(config: EtlConfig, scratch: Path) -> Iterator[Any]:
    """Start workers of one thread each on this machine: processes, or one for each GPU."""
    import dask

    available = cores()
    options: dict[str, Any] = {"local_directory": str(scratch), "silence_logs": logging.CRITICAL}
    options["scheduler_kwargs"] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # it serves something anyway
    workers = config.workers or available
    # Polars takes all cores for each process, and reads this when it is first used.
    threads = {"distributed.nanny.pre-spawn-environ.POLARS_MAX_THREADS": str(max(1, available // workers))}
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(threads))
        with _deaf():
            if config.cluster == "local":
                from distributed import LocalCluster

                started = LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=0, **options)
            else:
                started = _of_gpus(config, options)
            stack.enter_context(started)
        yield started


def _of_gpus(config: EtlConfig, options: dict[str, Any]) -> Any:
    from dask_cuda import LocalCUDACluster

    try:
        return LocalCUDACluster(n_workers=config.workers, **options)
    except Exception as error:  # the driver's library raises its own
        raise RecsysError(
            f"etl.cluster=local_cuda finds no GPU to use: {type(error).__name__}: {error}", hint="recsys doctor"
        ) from error


@contextmanager
def _deaf() -> Iterator[None]:
    """Start threads and processes to which Ctrl-C means nothing: they are stopped by the process that started them.

    A terminal sends it to all processes, and workers would each print a traceback. What comes meanwhile comes at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # else the first to need it starts it, and then hears everything
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _silent() -> Iterator[None]:
    """Keep Dask's logs to itself: what the user has to know is raised or told."""
    import distributed  # noqa: F401 - it sets up its loggers when it is imported

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    levels = {name: logging.getLogger(name).level for name in names}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
