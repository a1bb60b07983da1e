"""The scheduler of Dask: a local cluster, or an external one by its address."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from recsys_cli.cpu import cores
from recsys_cli.errors import RecsysError
from recsys_cli.executors import cluster
from recsys_cli.executors.checks import Checks
from recsys_cli.executors.cluster import Lost, Scheduler, SharedTask


class DaskScheduler(Scheduler):
    """A client of a Dask scheduler, which repeats the parts of lost workers by itself."""

    packages = ("dask", "distributed")

    def __init__(self, name: str, client: Any) -> None:
        start = f"start `dask worker {client.scheduler.address}` on a machine with this recsys-cli and the workspace"
        super().__init__(name, is_local=client.cluster is not None, start=start)
        self.client = client
        self._done = threading.Event()

    def workers(self) -> dict[str, int]:
        """See `Scheduler`."""
        try:
            return dict(self.client.nthreads())
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self.lost() from error

    def inspect(self, checks: Checks) -> Mapping[str, Any]:
        """See `Scheduler`."""
        try:
            found: Mapping[str, Any] = self.client.run(checks.inspect, on_error="return")
        except OSError as error:
            raise self.lost() from error
        return found

    def broadcast(self, task: Any) -> Any:
        """See `Scheduler`."""
        return self.client.scatter(task, broadcast=True, hash=False, timeout=cluster.CONNECT_TIMEOUT)

    def submit(self, sent: Any, part: Any) -> Any:
        """See `Scheduler`."""
        future = self.client.submit(SharedTask.run, sent, part, pure=False)
        future.add_done_callback(lambda _: self._done.set())
        return future

    def wait(self, futures: Sequence[Any], timeout: float) -> Sequence[Any]:
        """See `Scheduler`; `distributed.wait` costs more with each future."""
        self._done.clear()
        if done := [future for future in futures if future.done()]:
            return done
        self._done.wait(timeout)
        return [future for future in futures if future.done()]

    def result(self, future: Any, timeout: float) -> Any:
        """See `Scheduler`."""
        from distributed import CancelledError, KilledWorker

        try:
            return future.result(timeout=timeout)
        except KilledWorker as error:
            raise Lost(str(error), final=True) from error
        except CancelledError as error:
            if self.client.status != "running":
                raise self.lost() from error
            raise Lost from error
        except TimeoutError:
            raise
        except OSError as error:  # the connection broke during the transfer of the result
            raise self.lost() from error

    def cancel(self, futures: Sequence[Any]) -> None:
        """See `Scheduler`."""
        self.client.cancel(list(futures), force=True)


@contextmanager
def open_scheduler(name: str, workers: int | None, scratch: Path) -> Iterator[DaskScheduler]:
    """Start a local cluster, or connect to an external one."""
    import dask
    import distributed  # noqa: F401 - its import sets up the loggers

    with cluster.quiet_logs("distributed"), ExitStack() as stack:
        settings = {"distributed.comm.timeouts.connect": cluster.CONNECT_TIMEOUT, "temporary-directory": str(scratch)}
        stack.enter_context(dask.config.set(settings))
        is_local = name.startswith("local")
        address = stack.enter_context(_local_cluster(name, workers, scratch)) if is_local else name
        yield DaskScheduler(name, stack.enter_context(_client(address)))


def _client(scheduler: Any) -> Any:
    from distributed import Client

    if isinstance(scheduler, str):
        scheduler = scheduler.replace("dask://", "tcp://", 1)
    try:
        with warnings.catch_warnings():
            # Different releases: the inspection of the workers reports them as an error.
            warnings.filterwarnings("ignore", message=r"(?s).*Mismatched versions found")
            return Client(scheduler, set_as_default=False, timeout=cluster.CONNECT_TIMEOUT)
    except (OSError, TimeoutError, ValueError) as error:
        raise RecsysError(
            f"no Dask scheduler answers at {scheduler}: {error}", hint="start one: `dask scheduler`"
        ) from error


@contextmanager
def _local_cluster(name: str, workers: int | None, scratch: Path) -> Iterator[Any]:
    """Start workers of one thread each: one per core by default, or one per GPU."""
    import dask

    options: dict[str, Any] = {"local_directory": str(scratch), "silence_logs": logging.CRITICAL}
    # The scheduler starts an HTTP server even without a dashboard.
    options["scheduler_kwargs"] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    threads = {"distributed.nanny.pre-spawn-environ.POLARS_MAX_THREADS": cluster.polars_threads(workers)}
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(threads))
        with cluster.ignore_interrupts():
            if name == "local":
                from distributed import LocalCluster

                started = LocalCluster(n_workers=workers or cores(), threads_per_worker=1, memory_limit=0, **options)
            else:
                started = _gpu_cluster(workers, options)
            stack.enter_context(started)
        yield started


def _gpu_cluster(workers: int | None, options: dict[str, Any]) -> Any:
    from dask_cuda import LocalCUDACluster

    try:
        return LocalCUDACluster(n_workers=workers, **options)
    except Exception as error:  # the CUDA driver has its own error classes
        raise RecsysError(
            f"etl.cluster=local_cuda finds no usable GPU: {type(error).__name__}: {error}", hint="run `recsys doctor`"
        ) from error
