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

    SIGTERM, with which torchrun, Slurm and Kubernetes ask a process to end, and SIGHUP, which comes when a terminal is closed or
    a connection lost, count as Ctrl-C, but never break off. SIGHUP stays ignored where it is, as under nohup. Outside the main
    thread, where signals do not arrive, the function never says so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if asked.is_set() and number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        asked.set()

    heard = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        heard.append(signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
