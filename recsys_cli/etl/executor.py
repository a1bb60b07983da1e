"""Where parts of the work run: in threads of this process, or on the workers of a cluster (`cluster`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from recsys_cli.config import EtlConfig
from recsys_cli.cpu import cores
from recsys_cli.etl.engine import Engine
from recsys_cli.events import Emit

Part = TypeVar("Part")
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs one task on many parts."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the manifest says of where the work was done."""

    def map(self, task: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the task's result for each part, in the order of the parts; only a few are in work or waiting at a time."""


class Threads:
    """Threads of this process: the tasks' work is done by libraries that let go of the interpreter."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cores()

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says of where the work was done."""
        return {"cluster": None, "workers": 1, "threads": self.count}

    def map(self, task: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the task's result for each part, in order; at most one part more than there are threads is held."""
        if self.count == 1:
            yield from map(task, parts)
            return
        with ThreadPoolExecutor(self.count, thread_name_prefix="etl") as pool:
            ahead: deque[Future[Result]] = deque()
            try:
                for part in parts:
                    ahead.append(pool.submit(task, part))
                    if len(ahead) > self.count:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()


@contextmanager
def open_executor(config: EtlConfig, engine: Engine, scratch: Path, emit: Emit) -> Iterator[Executor]:
    """Give what a config asks for: threads of this process, or the workers of a cluster, which are let go at the end.

    Args:
        config: `cluster` and `workers` are looked at.
        engine: What will compute; says how many parts it takes at the same time.
        scratch: A folder for what is not kept, which every worker has to see.
        emit: Told of workers that are gone.

    Raises:
        MissingExtraError: A cluster is asked for and Dask is not installed.
        RecsysError: No scheduler or worker answers, or a worker cannot do the work; before any is done.
    """
    if config.cluster is None:
        yield Threads(engine.threads)
        return
    from recsys_cli.etl.cluster import open_cluster  # not where it is not asked for: Dask takes a second

    with open_cluster(config, engine, scratch, emit) as cluster:
        yield cluster
