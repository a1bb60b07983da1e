"""Ctrl-C at a safe place: the loop is asked to stop between two steps, instead of being broken off inside one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Hold back the first Ctrl-C, and give a function that says whether there was one; the second breaks off at once.

    SIGTERM, with which torchrun, Slurm and Kubernetes ask a process to end, counts as Ctrl-C, but never breaks off.
    Outside the main thread, where signals do not arrive, the function never says so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if asked.is_set() and number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        asked.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
