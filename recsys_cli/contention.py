"""CPU contention: how much of the cores this process gets while other processes want them too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from recsys_cli.cpu import cores

_TASKS = Path("/proc/self/task")
_INTERVAL = 2.0
"""Seconds between two readings: shorter ones are noise of the scheduler."""
_STARVED = 0.75
"""Share of the cores below which a process with waiting threads is short of them."""
_WAITING = 0.25
"""Share of their runnable time that threads have to wait for a core."""


class CpuTime(NamedTuple):
    """CPU time of all threads of this process, in seconds: on a core, and runnable but waiting for one."""

    running: float
    waiting: float


class Contention:
    """Reads now and then how many cores this process gets.

    Own threads in excess of the cores wait as well, but then the process has all cores. So both have to hold: threads
    wait for cores, and the process gets fewer than there are.

    Args:
        read: Returns the CPU time so far; None where the system does not tell.
        clock: Wall time in seconds.
    """

    def __init__(
        self, read: Callable[[], CpuTime | None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read or read_cpu_time
        self._clock = clock
        self._cores = cores()
        self._last = (clock(), self._read())
        self._found = ""

    def describe(self) -> str:
        """Return such as "0.7 of 2 (other processes)" where this process lacks cores; else an empty text."""
        now, (then, before) = self._clock(), self._last
        if now - then >= _INTERVAL:
            after = self._read()
            self._last = (now, after)
            self._found = self._compare(before, after, now - then)
        return self._found

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
            except FileNotFoundError:  # a thread that has just ended
                continue
            running, waiting = running + int(numbers[0]), waiting + int(numbers[1])
    except (OSError, ValueError, IndexError):
        return None
    return CpuTime(running / 1e9, waiting / 1e9) if running else None
