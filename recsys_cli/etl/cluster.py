"""Executors of parallel tasks: threads, or the workers of a Dask cluster, with checks and retries after lost workers."""

from __future__ import annotations

import hashlib
import logging
import platform
import signal
import socket
import traceback
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Generic, TypeVar

import recsys_cli
from recsys_cli import __version__
from recsys_cli.config import EtlConfig
from recsys_cli.cpu import cores
from recsys_cli.errors import MissingExtraError, RecsysError
from recsys_cli.etl.engine import Engine, missing_of_cluster
from recsys_cli.events import Emit, Message
from recsys_cli.packages import installed

Part = TypeVar("Part")
Result = TypeVar("Result")

_PACKAGES = ("polars", "pyarrow", "numpy", "dask", "distributed")
_SHARE = "put the workspace on a file system that every worker mounts at the same path, and name it with --workspace"


def releases() -> dict[str, str]:
    """Return the versions to match on every worker: recsys-cli with a hash of its source, others as major.minor."""
    versions = {
        "recsys-cli": f"{__version__} of source {_source()}",
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
    for package in _PACKAGES:
        versions[package] = ".".join((installed(package) or "missing").split(".")[:2])
    return versions


@cache
def _source() -> str:
    """Return a hash of this package's code: two checkouts may have the same version."""
    folder = Path(recsys_cli.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


@dataclass(frozen=True)
class WorkerInfo:
    """The state of a worker.

    Attributes:
        missing: The package that the engine lacks on this worker; None if it can run.
        folder_error: The reason against the scratch folder; None if it is usable.
    """

    host: str
    releases: Mapping[str, str]
    missing: MissingExtraError | None
    folder_error: str | None


@dataclass(frozen=True)
class SharedFolder:
    """A folder with a token: every worker reads it and writes a reply, to check the file system."""

    path: Path
    token: str

    @classmethod
    def at(cls, path: Path) -> SharedFolder:
        """Create the folder with its token file."""
        path.mkdir()
        shared = cls(path, uuid.uuid4().hex)
        (path / "token").write_text(shared.token)
        return shared

    def inspect(self, engine: Engine) -> WorkerInfo:
        """Return the state of the current worker, and write its reply."""
        try:
            folder_error = None if self.is_same() else f"the worker has another folder at {self.path}"
            (self.path / f"reply-{self.token}-{uuid.uuid4().hex[:8]}").touch()
        except OSError as error:
            folder_error = str(error)
        return WorkerInfo(socket.gethostname(), releases(), engine.missing(engine.device), folder_error)

    def is_same(self) -> bool:
        """Whether this process reads the original token."""
        return (self.path / "token").read_text() == self.token

    def num_replies(self) -> int:
        """Count the replies of workers."""
        return len(list(self.path.glob(f"reply-{self.token}-*")))

    def problems(self, workers: Mapping[str, WorkerInfo | Exception]) -> dict[str, str]:
        """Return the problems of workers (state or error of the inspection, by address), each with its hint."""
        here = releases()
        hints: dict[str, str] = {}
        for address, info in workers.items():
            if isinstance(info, Exception):
                problem = f"worker {address} cannot run a task of recsys-cli: {type(info).__name__}: {info}"
                hints[problem] = _install(here)
                continue
            worker = f"worker {address} on {info.host}"
            if theirs := [f"{name} {version}" for name, version in info.releases.items() if version != here[name]]:
                ours = [f"{name} {here[name]}" for name, version in info.releases.items() if version != here[name]]
                hints[f"{worker} runs {', '.join(theirs)}; this process runs {', '.join(ours)}"] = _install(here)
            if info.missing is not None:
                hints[f"{worker}: {info.missing.message}"] = f"{info.missing.hint}, on every worker"
            if info.folder_error is not None:
                hints[f"{worker} cannot use the scratch folder {self.path}: {info.folder_error}"] = _SHARE
        if not hints and self.num_replies() < len(workers):
            hints[f"files written by the workers to {self.path} are not visible here"] = _SHARE
        return hints


def _install(here: Mapping[str, str]) -> str:
    pins = " ".join(f"{name}=={here[name]}.*" for name in _PACKAGES)
    return f"run every worker on Python {here['python']} after: pip install recsys-cli=={__version__} {pins}"


@dataclass(frozen=True)
class Failure:
    """An error as the return value of a task: Dask would log a raised error on the worker."""

    error: Exception


@dataclass(frozen=True)
class SharedTask(Generic[Part, Result]):
    """A task, broadcast to all workers.

    Attributes:
        shared: The folder to check first: a worker may have joined after the inspection.
    """

    task: Callable[[Part], Result]
    shared: SharedFolder

    def run(self, part: Part) -> Result | Failure:
        """Run one part, possibly twice if a worker dies: the task is idempotent."""
        try:
            _check(self.shared)
            return self.task(part)
        except Exception as error:  # raised again in the process that waits for the result
            return Failure(_portable(error))


@cache
def _check(shared: SharedFolder) -> None:
    """Check the shared folder, once per process."""
    try:
        is_same = shared.is_same()
    except OSError as error:
        raise RecsysError(
            f"a worker on {socket.gethostname()} cannot see the workspace: {error}", hint=_SHARE
        ) from error
    if not is_same:
        raise RecsysError(f"{shared.path} is another folder on the worker {socket.gethostname()}", hint=_SHARE)


def _portable(error: Exception) -> Exception:
    """Return an error that any process can unpickle and raise, with its traceback as a note."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, RecsysError) and type(error).__module__ != "builtins":
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"on {socket.gethostname()}:\n{text}")
    return error


CONNECT_TIMEOUT = 10.0
"""Timeout of a connection to the scheduler, in seconds."""
WORKER_TIMEOUT = 15.0
"""Seconds to wait for a first or a replacement worker of an external cluster."""
_LOCAL_WORKER_TIMEOUT = 60.0
"""The same for a local cluster, where this process restarts workers."""
_TICK = 1.0
_AHEAD = 3
_ATTEMPTS = 4


class Cluster:
    """Runs tasks on the workers of a Dask cluster.

    Other workers repeat the parts of a lost worker, so a part may run twice.
    """

    def __init__(self, name: str, client: Any, shared: SharedFolder, emit: Emit) -> None:
        self.name = name
        self.client = client
        self.shared = shared
        self.emit = emit
        self._no_workers_since: float | None = None
        self.threads = self._workers()

    @property
    def facts(self) -> dict[str, Any]:
        """See `Executor.facts`."""
        return {"cluster": self.name, "workers": len(self.threads), "threads": sum(self.threads.values())}

    def map(self, task: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the results of the parts, in order, with a few parts per worker thread in flight.

        Raises:
            RecsysError: All workers or the scheduler are lost, or a part killed every worker that tried it.
        """
        sent = _SentTask(self, SharedTask(task, self.shared))
        ahead: deque[_Pending[Part]] = deque()
        try:
            for part in parts:
                ahead.append(sent.submit(part))
                if len(ahead) >= _AHEAD * max(1, sum(self.threads.values())):
                    yield sent.result(ahead.popleft())
            while ahead:
                yield sent.result(ahead.popleft())
            self.check_workers()
        finally:
            with suppress(Exception):  # it must not hide an earlier error
                self.client.cancel([pending.future for pending in ahead], force=True)

    def ready(self, engine: Engine) -> None:
        """Wait for a first worker, then inspect all workers.

        Raises:
            RecsysError: There is no worker, or a worker has a problem; the message lists all problems.
        """
        self.wait()
        try:
            workers = self.client.run(self.shared.inspect, engine, on_error="return")
        except OSError as error:
            raise self.scheduler_lost() from error
        if problems := self.shared.problems(workers):
            raise RecsysError("\n".join(problems), hint="; ".join(dict.fromkeys(problems.values())))

    def wait(self) -> None:
        """Wait for a worker."""
        self.check_workers()
        while not self.threads:
            sleep(0.1)
            self.check_workers()

    def check_workers(self) -> None:
        """Update the list of workers, and warn about lost ones."""
        before, self.threads = self.threads, self._workers()
        for address in before.keys() - self.threads.keys():
            self.emit(Message(f"worker {address} is lost; other workers repeat its parts", "warning"))
        if self.threads:
            self._no_workers_since = None
            return
        self._no_workers_since = self._no_workers_since or monotonic()
        is_local = self.client.cluster is not None
        timeout = _LOCAL_WORKER_TIMEOUT if is_local else WORKER_TIMEOUT
        if monotonic() - self._no_workers_since > timeout:
            address = self.client.scheduler.address
            start = f"start `dask worker {address}` on a machine with this recsys-cli and the workspace"
            raise RecsysError(
                f"the Dask scheduler {address} has had no worker for {timeout:.0f} s",
                hint="check for lack of memory; fewer etl.workers need less" if is_local else start,
            )

    def _workers(self) -> dict[str, int]:
        try:
            return dict(self.client.nthreads())
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self.scheduler_lost() from error

    def scheduler_lost(self) -> RecsysError:
        """Return the error for a lost scheduler."""
        hint = "check its log; start it and its workers again, then repeat the command"
        return RecsysError(f"the Dask scheduler of etl.cluster={self.name} is lost", hint=hint)


@dataclass(frozen=True)
class _Pending(Generic[Part]):
    """A submitted part, and the Dask futures of its result and of its broadcast task."""

    part: Part
    future: Any
    task: Any


class _SentTask(Generic[Part, Result]):
    """A task, broadcast to all workers, and again after the loss of every worker with a copy."""

    def __init__(self, cluster: Cluster, task: SharedTask[Part, Result]) -> None:
        self._cluster = cluster
        self._task = task
        self._sent: Any = None

    def submit(self, part: Part) -> _Pending[Part]:
        if self._sent is None:
            self._sent = self._send()
        return _Pending(part, self._cluster.client.submit(SharedTask.run, self._sent, part, pure=False), self._sent)

    def result(self, pending: _Pending[Part]) -> Result:
        from distributed import CancelledError, KilledWorker

        for _ in range(_ATTEMPTS):
            try:
                result: Result | Failure = self._wait(pending.future)
            except KilledWorker as error:
                raise RecsysError(
                    f"every worker that tried {pending.part} died: {error}",
                    hint="the usual cause is lack of memory: run fewer workers per machine, or lower etl.shard_rows",
                ) from error
            except CancelledError as error:
                if self._cluster.client.status != "running":
                    raise self._cluster.scheduler_lost() from error
                if pending.task is self._sent:
                    self._sent = None
                pending = self.submit(pending.part)
                continue
            if isinstance(result, Failure):
                raise result.error
            return result
        raise RecsysError(f"the workers of {self._cluster.name} were lost {_ATTEMPTS} times", hint="check their logs")

    def _wait(self, future: Any) -> Any:
        while True:
            try:
                return future.result(timeout=_TICK)
            except TimeoutError:
                self._cluster.check_workers()
            except OSError as error:  # the connection broke during the transfer of the result
                raise self._cluster.scheduler_lost() from error

    def _send(self) -> Any:
        while True:
            self._cluster.wait()
            with suppress(OSError, TimeoutError, ValueError):  # a worker died during the broadcast
                return self._cluster.client.scatter(self._task, broadcast=True, hash=False, timeout=CONNECT_TIMEOUT)


@contextmanager
def open_cluster(config: EtlConfig, engine: Engine, scratch: Path, emit: Emit) -> Iterator[Cluster]:
    """Start a local cluster or connect to an external one; see `open_executor`."""
    assert config.cluster is not None
    if (error := missing_of_cluster(config.cluster)) is not None:
        raise error
    with _quiet_logs(), ExitStack() as stack:
        import dask

        stack.enter_context(dask.config.set({"distributed.comm.timeouts.connect": CONNECT_TIMEOUT}))
        is_local = config.cluster.startswith("local")
        scheduler = stack.enter_context(_local_cluster(config, scratch)) if is_local else config.cluster
        client = stack.enter_context(_client(scheduler))
        cluster = Cluster(config.cluster, client, SharedFolder.at(scratch / "shared"), emit)
        cluster.ready(engine)
        yield cluster


def _client(scheduler: Any) -> Any:
    from distributed import Client

    try:
        with warnings.catch_warnings():
            # Different releases: the inspection of the workers reports them as an error.
            warnings.filterwarnings("ignore", message=r"(?s).*Mismatched versions found")
            return Client(scheduler, set_as_default=False, timeout=CONNECT_TIMEOUT)
    except (OSError, TimeoutError, ValueError) as error:
        raise RecsysError(
            f"no Dask scheduler answers at {scheduler}: {error}", hint="start one: `dask scheduler`"
        ) from error


@contextmanager
def _local_cluster(config: EtlConfig, scratch: Path) -> Iterator[Any]:
    """Start workers of one thread each: one per core by default, or one per GPU."""
    import dask

    available = cores()
    options: dict[str, Any] = {"local_directory": str(scratch), "silence_logs": logging.CRITICAL}
    # The scheduler starts an HTTP server even without a dashboard.
    options["scheduler_kwargs"] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    workers = config.workers or available
    # Polars uses all cores in each process, and reads the variable at its first use.
    threads = {"distributed.nanny.pre-spawn-environ.POLARS_MAX_THREADS": str(max(1, available // workers))}
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(threads))
        with _ignore_interrupts():
            if config.cluster == "local":
                from distributed import LocalCluster

                started = LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=0, **options)
            else:
                started = _gpu_cluster(config, options)
            stack.enter_context(started)
        yield started


def _gpu_cluster(config: EtlConfig, options: dict[str, Any]) -> Any:
    from dask_cuda import LocalCUDACluster

    try:
        return LocalCUDACluster(n_workers=config.workers, **options)
    except Exception as error:  # the CUDA driver has its own error classes
        raise RecsysError(
            f"etl.cluster=local_cuda finds no usable GPU: {type(error).__name__}: {error}", hint="run `recsys doctor`"
        ) from error


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
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
def _quiet_logs() -> Iterator[None]:
    """Mute the logs of Dask: errors and events have all messages for the user."""
    import distributed  # noqa: F401 - its import sets up the loggers

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    levels = {name: logging.getLogger(name).level for name in names}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
