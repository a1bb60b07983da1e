"""Where parts of the work run: in threads of this process, or on the workers of a cluster (`cluster`)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs one task on many parts."""

    def map(self, task: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the task's result for each part, in the order of the parts; only a few are in work or waiting at a time."""


class Threads:
    """Threads of this process: the tasks' work is done by libraries that let go of the interpreter."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or os.cpu_count() or 1

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
