"""Hardware of this machine, and the allocator of this process."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from recsys_cli.cpu import cores, has_bf16
from recsys_cli.errors import ConfigError
from recsys_cli.training.member import Member

Precision = Literal["fp32", "bf16", "fp16"]


@contextmanager
def tf32(*, enabled: bool) -> Iterator[None]:
    """Compute products of matrices on a GPU in TF32 or not; the setting of the process is restored at the end."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = enabled
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def device(choice: Literal["auto", "cpu", "cuda"], member: Member | None = None) -> torch.device:
    """Return the torch device of a process, None for this one; each process of a machine gets its own GPU.

    Raises:
        ConfigError: torch sees no GPU, or the machine has fewer GPUs, or far fewer cores, than processes.
    """
    if choice == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device=cuda, but torch sees no GPU", hint="set train.device=auto")
    if choice == "auto":
        choice = "cuda" if torch.cuda.is_available() else "cpu"
    member = member or Member.from_environment()
    if member is None:
        return torch.device(choice)
    if choice == "cpu":
        if member.local_world_size > (most := max(8, 4 * cores())):
            raise ConfigError(
                f"{member.local_world_size} processes on a machine with {cores()} cores",
                hint=f"set train.devices={most} or less",
            )
        return torch.device(choice)
    if member.local_world_size > (gpus := torch.cuda.device_count()):
        raise ConfigError(
            f"{member.local_world_size} processes on a machine with {gpus} GPUs", hint=f"set train.devices={gpus}"
        )
    return torch.device("cuda", member.local_rank)


def precision(
    choice: Literal["auto", "fp32", "bf16", "fp16"], where: torch.device, *, bf16_on_cpu: bool = True
) -> Precision:
    """Return the precision on a device; `auto` is bf16 with native hardware support, else fp32.

    `bf16_on_cpu` is the trait of a model: without it `auto` is fp32 on a CPU.
    """
    if choice != "auto":
        return choice
    if where.type == "cpu" and not bf16_on_cpu:
        return "fp32"
    native = torch.cuda.is_bf16_supported(including_emulation=False) if where.type == "cuda" else has_bf16()
    return "bf16" if native else "fp32"


def facts() -> dict[str, Any]:
    """Return threads, GPUs, CUDA version, and the device and precision of `auto`, for `recsys doctor`."""
    where = device("auto")
    return {
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda,
        "cpu_bf16": has_bf16(),
        "auto_device": where.type,
        "auto_precision": precision("auto", where),
    }


def now(device: torch.device) -> float:
    """Return the seconds of a clock, after the work queued on the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def peak_memory() -> dict[str, int]:
    """Return the peak memory of this process in bytes: `host`, and with a GPU `device`."""
    unit = 1 if sys.platform == "darwin" else 1024
    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    if torch.cuda.is_available():
        peak["device"] = torch.cuda.max_memory_allocated()
    return peak


def free_memory(where: torch.device) -> dict[Literal["host", "device"], int]:
    """Return the free memory in bytes: `host`, and on a GPU `device`."""
    free: dict[Literal["host", "device"], int] = {"host": min(_free_in_machine(), _free_in_container())}
    if where.type == "cuda":
        free["device"] = torch.cuda.mem_get_info(where)[0]
    return free


def _free_in_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux: the physical memory
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _free_in_container() -> int:
    folder = Path("/sys/fs/cgroup")
    try:
        return int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # no container, or no limit
        return sys.maxsize


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt, from malloc.h."""
_MMAP_THRESHOLD = 1 << 30
"""Size in bytes from which a block is returned to the kernel when freed: above a step's tensors, below large tables."""
_NEVER = (1 << 31) - 1


def keep_freed_memory() -> None:
    """Reuse the memory of freed tensors in this process; for loops that allocate the same tensors in every step.

    glibc returns blocks of 32 MiB and more to the kernel, and the next block consists of fresh pages, zeroed on access:
    45,000 per step of the Merlin notebook's network, a seventh of its time on two cores. With reuse, the process stays
    at its peak memory. A no-op without glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, _NEVER)
