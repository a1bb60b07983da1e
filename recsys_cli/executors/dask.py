"""The scheduler of Dask: a local cluster, or an external one by its address."""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from inspect import signature
from pathlib import Path
from time import monotonic
from typing import Any

from recsys_cli.cpu import cores
from recsys_cli.errors import RecsysError
from recsys_cli.executors import cluster
from recsys_cli.executors.checks import Checks
from recsys_cli.executors.cluster import Lost, Outcome, Scheduler, SharedTask

_SILENCE = 30.0
"""Seconds without a heartbeat after which a worker is given up: Dask waits for minutes."""
_INSPECTION_TIMEOUT = 30.0
"""Seconds for the answer to an inspection."""


class _DaskScheduler(Scheduler):
    """A client of a Dask scheduler, which repeats the parts of lost workers by itself."""

    kind, packages, attempts = "Dask", ("dask", "distributed"), 1

    def __init__(self, name: str, client: Any) -> None:
        from distributed import Scheduler as Distributed

        start = f"start `dask worker {client.scheduler.address}` on a machine with this recsys-cli and the workspace"
        start += "; workers without free memory, which Dask pauses, do not count"
        super().__init__(name, is_local=client.cluster is not None, start=start)
        self.client = client
        self._heard: dict[str, tuple[float, float]] = {}
        # That of 2023.7 takes no number, and lists all.
        self._all = {"n_workers": -1} if "n_workers" in signature(Distributed.identity).parameters else {}

    def workers(self) -> dict[str, int]:
        # Without workers that Dask has paused for lack of memory, and silent ones, which are given up here.
        try:
            found = self.client.sync(self.client.scheduler.identity, **self._all)["workers"]
            silent = [address for address, worker in found.items() if self._is_silent(address, worker["last_seen"])]
            for address in silent:
                self.client.sync(self.client.scheduler.unregister, address=address, stimulus_id="recsys: silent")
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self.lost() from error
        return {
            address: worker["nthreads"]
            for address, worker in found.items()
            if address not in silent and worker.get("status") != "paused"
        }

    def _is_silent(self, address: str, seen: float) -> bool:
        """Whether the last heartbeat of a worker, by the clock of the scheduler, stays the same for long."""
        now = monotonic()
        before, since = self._heard.get(address, (seen, now))
        self._heard[address] = seen, since if seen == before else now
        return seen == before and now - since > _SILENCE

    def inspect(self, checks: Checks) -> Mapping[str, Any]:
        async def ask(address: str) -> Any:
            try:
                answer = self.client.run(checks.problems, workers=[address], on_error="return")
                return (await asyncio.wait_for(answer, _INSPECTION_TIMEOUT))[address]
            except (OSError, TimeoutError):  # it hangs, or has just died
                return TimeoutError(f"no answer within {_INSPECTION_TIMEOUT:.0f} s")

        async def ask_all(addresses: Iterable[str]) -> list[Any]:
            return await asyncio.gather(*map(ask, addresses))

        addresses = list(self.workers())
        return dict(zip(addresses, self.client.sync(ask_all, addresses), strict=True))

    def broadcast(self, task: SharedTask[Any, Any]) -> Callable[[Any], Any]:
        # As the result of a task, which workers fetch from each other. A scatter would wait for each of them.
        sent = self.client.submit(_same, task, pure=False)
        return lambda part: self.client.submit(SharedTask.run, sent, part, pure=False)

    def result(self, future: Any, timeout: float) -> Outcome:
        from distributed import CancelledError, KilledWorker

        try:
            outcome: Outcome = future.result(timeout=timeout)
        except KilledWorker as error:
            raise Lost(str(error)) from error
        except TimeoutError:
            raise
        except (CancelledError, OSError) as error:  # the connection broke, possibly during the transfer of the result
            raise self.lost() from error
        return outcome

    def cancel(self, futures: Sequence[Any]) -> None:
        self.client.cancel(list(futures), force=True)


def _same(task: Any) -> Any:
    return task


@contextmanager
def open_scheduler(name: str, workers: int | None, scratch: Path) -> Iterator[Scheduler]:
    """Start a local cluster, or connect to an external one."""
    import dask
    import distributed  # noqa: F401 - its import sets up the loggers

    with cluster.quiet_logs("distributed"), ExitStack() as stack:
        settings = {"distributed.comm.timeouts.connect": cluster.CONNECT_TIMEOUT, "temporary-directory": str(scratch)}
        stack.enter_context(dask.config.set(settings))
        is_local = name.startswith("local")
        address = stack.enter_context(_local_cluster(name, workers, scratch)) if is_local else name
        yield _DaskScheduler(name, stack.enter_context(_client(address)))


def _client(scheduler: Any) -> Any:
    from distributed import Client

    if isinstance(scheduler, str):
        scheduler = scheduler.replace("dask://", "tcp://", 1)
    answers: list[Any] = []

    def connect() -> None:
        try:
            answers.append(Client(scheduler, set_as_default=False, timeout=cluster.CONNECT_TIMEOUT))
        except Exception as error:  # what answers may be no scheduler
            answers.append(error)

    with warnings.catch_warnings():
        # Different releases: the inspection of the workers reports them as an error.
        warnings.filterwarnings("ignore", message=r"(?s).*Mismatched versions found")
        thread = threading.Thread(target=connect, daemon=True)  # its time limit is for a connection, not for an answer
        thread.start()
        thread.join(2 * cluster.CONNECT_TIMEOUT)
    found = answers[0] if answers else TimeoutError("nothing that a scheduler would say")
    if isinstance(found, Exception):
        raise RecsysError(
            f"no Dask scheduler answers at {scheduler}: {found}", hint="start one: `dask scheduler`"
        ) from found
    return found


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
