"""CPU contention with other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from recsys_cli.cpu import cores

_TASKS = Path("/proc/self/task")
_INTERVAL = 2.0
"""Minimum seconds between two readings: shorter intervals measure scheduler noise."""
_STARVED = 0.75
"""Contention threshold: share of the cores in use by this process."""
_WAITING = 0.25
"""Contention threshold: share of runnable time spent waiting for a core."""


class CpuTime(NamedTuple):
    """CPU time of all threads of this process in seconds: on a core, and waiting for one."""

    running: float
    waiting: float


class Contention:
    """Monitors the number of cores in use by this process.

    Contention needs both conditions: threads wait for cores, and the process uses fewer than all cores. Waiting
    threads are no proof, because a process with more threads than cores also has some.
    """

    def __init__(
        self, read: Callable[[], CpuTime | None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read or read_cpu_time
        self._clock = clock
        self._cores = cores()
        self._last = (clock(), self._read())
        self._description = ""

    def describe(self) -> str:
        """Return a text such as "0.7 of 2 (other processes)" under contention, otherwise an empty string."""
        now, (then, before) = self._clock(), self._last
        if now - then >= _INTERVAL:
            after = self._read()
            self._last = (now, after)
            self._description = self._compare(before, after, now - then)
        return self._description

    def _compare(self, before: CpuTime | None, after: CpuTime | None, wall: float) -> str:
        if before is None or after is None:
            return ""
        running, waiting = after.running - before.running, after.waiting - before.waiting
        starved = running < _STARVED * wall * self._cores and waiting > _WAITING * (running + waiting)
        return f"{running / wall:.1f} of {self._cores} (other processes)" if starved else ""


def read_cpu_time(tasks: Path = _TASKS) -> CpuTime | None:
    """Return the CPU time of all threads from Linux's scheduler statistics; None on other systems."""
    running = waiting = 0
    try:
        for task in tasks.iterdir():
            try:
                numbers = (task / "schedstat").read_text(encoding="ascii").split()
            except FileNotFoundError:  # the thread has ended
                continue
            running, waiting = running + int(numbers[0]), waiting + int(numbers[1])
    except (OSError, ValueError, IndexError):
        return None
    return CpuTime(running / 1e9, waiting / 1e9) if running else None
