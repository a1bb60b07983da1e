"""Executors of parallel tasks: threads, or the workers of a cluster (`cluster`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from recsys_cli.config import EtlConfig
from recsys_cli.cpu import Threads
from recsys_cli.etl.engine import Engine
from recsys_cli.events import Emit

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
def open_executor(config: EtlConfig, engine: Engine, scratch: Path, emit: Emit) -> Iterator[Executor]:
    """Open the executor of a config, and close it at the end; workers of a cluster share `scratch`.

    Raises:
        MissingExtraError: The config has a cluster and Dask is not installed.
        RecsysError: The scheduler or the workers do not answer, or a worker has a problem.
    """
    if config.cluster is None:
        yield Threads(engine.threads)
        return
    from recsys_cli.etl.cluster import open_cluster  # local, because the import of Dask takes a second

    with open_cluster(config, engine, scratch, emit) as cluster:
        yield cluster
