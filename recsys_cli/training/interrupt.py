"""Deferred interrupts: training stops between two steps, never inside one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Defer the first Ctrl-C of a block; the second one interrupts at once.

    SIGTERM (torchrun, Slurm, Kubernetes) and SIGHUP (a lost connection) count as a first Ctrl-C and never interrupt at
    once. An ignored SIGHUP, as under nohup, stays ignored.

    Yields:
        A function that returns whether there was an interrupt; always False outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    interrupted = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set() and number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        interrupted.set()

    handled = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handle) for number in handled}
    try:
        yield interrupted.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
