"""The CPU: available cores, threads for parallel tasks, thread settings and bf16 support."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Part = TypeVar("Part")
Result = TypeVar("Result")

_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_LOAD = Path("/proc/loadavg")
_SAMPLES = 5


def configure_threads(environment: MutableMapping[str, str] | None = None) -> None:
    """Set the thread variables of OpenMP and Polars, except those set by the user.

    Call this before torch is imported: OpenMP reads the variables then. Idle threads spin, which is fastest on an
    idle machine. With other busy processes they sleep, because a spinning thread blocks the core of a working one. In
    a container with a CPU quota, the number of threads follows the quota.
    """
    environment = os.environ if environment is None else environment
    if not any(name in environment for name in _WAITING) and lacks_cores():
        environment["OMP_WAIT_POLICY"] = "passive"
    if (quota := cpu_quota()) is not None and quota < _affinity():
        for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
            environment.setdefault(name, str(max(1, math.ceil(quota))))


def cores() -> int:
    """Return the number of available cores: the smaller of CPU affinity and container quota."""
    quota = cpu_quota()
    return _affinity() if quota is None else max(1, min(_affinity(), math.ceil(quota)))


class Threads:
    """A thread pool: tasks spend their time in libraries that release the GIL."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cores()

    @property
    def facts(self) -> dict[str, int | None]:
        """The entries of the manifest: cluster, number of workers and threads."""
        return {"cluster": None, "workers": 1, "threads": self.count}

    def map(self, task: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the results of the parts, in order; at most one part more than there are threads is in flight."""
        if self.count == 1:
            yield from map(task, parts)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(self.count, thread_name_prefix="etl") as pool:
            ahead: deque[Future[Result]] = deque()
            try:
                for part in parts:
                    ahead.append(pool.submit(task, part))
                    del part  # a part may be large, and is not needed after its task
                    if len(ahead) > self.count:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()


def read_ahead(items: Iterable[Item]) -> Generator[Item]:
    """Yield items, prefetching the next one in a thread."""
    from concurrent.futures import ThreadPoolExecutor

    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="read") as pool:
        pending: Future[Item | object] = pool.submit(next, source, end)
        try:
            while (item := pending.result()) is not end:
                pending = pool.submit(next, source, end)
                yield item  # type: ignore[misc]
        finally:
            pending.cancel()


def cpu_quota(cgroups: Path = _CGROUPS, own: Path = _OWN_CGROUP) -> float | None:
    """Return the minimum CPU quota, in cores, of this process's control group (v1 or v2) and its parents; None if unlimited."""
    try:
        lines = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
    except OSError:  # not Linux
        return None
    quotas = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers:
            quotas += [_quota(folder / "cpu.max") for folder in _parents(cgroups, path)]
        elif "cpu" in controllers.split(","):
            folders = _parents(cgroups / "cpu", path)
            quotas += [_quota(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us") for folder in folders]
    return min((quota for quota in quotas if quota is not None), default=None)


def lacks_cores(load: Path = _LOAD) -> bool:
    """Return whether other processes leave fewer cores than are available to this process.

    Uses the minimum of five counts of runnable threads within 8 ms, to ignore short tasks.
    """
    counts = []
    for sample in range(_SAMPLES):
        time.sleep(0.002 if sample else 0)
        try:
            counts.append(int(load.read_text(encoding="ascii").split()[3].partition("/")[0]))
        except (OSError, ValueError, IndexError):  # not Linux
            return False
    others = min(counts) - 1  # without this thread
    return (os.cpu_count() or 1) - others < cores()


def has_bf16() -> bool:
    """Return whether the CPU has native bf16; emulated bf16 is slower than fp32."""
    try:
        return any(name in Path("/proc/cpuinfo").read_text(encoding="utf-8") for name in ("amx_bf16", "avx512_bf16"))
    except OSError:
        return False


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _parents(root: Path, path: str) -> list[Path]:
    """Return the folder of a control group and its parents up to the mount point.

    In a container only the mount point may exist, and the path be that of the host.
    """
    folder = root / path.strip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


def _quota(*files: Path) -> float | None:
    """Return the quotient of quota and period, in one file (v2) or two (v1); "max" (v2) and -1 (v1) are no limit."""
    try:
        quota, period = (int(text) for file in files for text in file.read_text(encoding="ascii").split())
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
