"""Ordered prefetching with background threads and a bounded depth."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Step = TypeVar("Step")
Result = TypeVar("Result")


def prefetch(
    build: Callable[[Step], Result], steps: Iterable[Step], *, threads: int, depth: int
) -> Generator[Result, None, None]:
    """Yield build(step) for each step in order, and build the next ones in background threads.

    Closing the iterator, as by leaving a for loop, waits for running builds and ends the threads. `depth` bounds the
    results in progress or waiting, besides the current one.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="recsys-loader")
    waiting: deque[Future[Result]] = deque()
    try:
        for step in steps:
            waiting.append(pool.submit(build, step))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
