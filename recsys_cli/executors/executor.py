"""The executor of tasks, and its choice by the name of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from recsys_cli.cpu import Threads, cores
from recsys_cli.events import Emit, ignore
from recsys_cli.executors.address import is_ray, missing_of_cluster
from recsys_cli.executors.checks import Checks, Requires
from recsys_cli.executors.cluster import Cluster

AUTO_SECONDS = 60.0
"""Least work on this machine for which `auto` joins a cluster, with more threads than this machine has cores.

Joining took 2 to 3 s on Dask and 5 to 12 s on Ray, three nodes on two busy cores.
"""

Part = TypeVar("Part")
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs a task on many parts."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The entries of the manifest: cluster, number of workers and threads."""

    def map(self, task: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the results of the parts, in order, with a bounded number of parts in flight."""


@contextmanager
def open_executor(
    cluster: str | None,
    scratch: Path,
    *,
    workers: int | None = None,
    seconds: float = 0,
    packages: tuple[str, ...] = ("polars", "pyarrow", "numpy"),
    requires: Requires | None = None,
    emit: Emit = ignore,
) -> Iterator[Executor]:
    """Open an executor, and close it at the end.

    Args:
        cluster: Name or address of a cluster; None for threads of this process.
        scratch: A folder, which the workers of a cluster share.
        workers: Number of processes of a local cluster, or of threads without one; None for the number of cores.
        seconds: Estimate of the work on this machine, for `auto`.
        packages: Packages of the tasks, with the same release on every worker.
        requires: Returns a package that the tasks lack on a worker, or None; it has to be picklable.
        emit: Receives warnings about lost workers.

    Raises:
        MissingExtraError: The package of the cluster is not installed.
        RecsysError: The scheduler or the workers do not answer, or a worker has a problem.
    """
    is_auto = cluster == "auto"
    if is_auto:
        cluster = _named() if seconds >= AUTO_SECONDS else None
    if cluster is None:
        yield Threads(workers)
        return
    if (error := missing_of_cluster(cluster)) is not None:
        raise error
    schedulers = import_module(f"recsys_cli.executors.{'ray' if is_ray(cluster) else 'dask'}")
    with schedulers.open_scheduler(cluster, workers, scratch) as scheduler:
        checks = Checks.at(scratch / "shared", (*packages, *scheduler.packages), requires)
        opened = Cluster(scheduler, checks, emit)
        opened.inspect()
        yield Threads(workers) if is_auto and sum(opened.threads.values()) <= cores() else opened


def _named() -> str | None:
    """Return the cluster that the environment names, or None."""
    ray = os.environ.get("RAY_ADDRESS", "local") != "local"
    return os.environ.get("DASK_SCHEDULER_ADDRESS") or ("ray" if ray else None)
