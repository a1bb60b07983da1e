"""Work ahead of whoever consumes the batches: in order, never by more than a few, and with no thread left when it stops."""

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
    """Yield build(step) for each step, in order, while the next ones are built in background threads.

    Closing the iterator, which leaving a for loop early does, waits for what is being built and ends the threads.

    Args:
        build: Makes one result; called from several threads at once where there are several.
        steps: What to build.
        threads: How many are built at the same time.
        depth: How many are built or waiting at most, beside the one that was handed out.

    Raises:
        Exception: What `build` raised, where its result would have come.
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
