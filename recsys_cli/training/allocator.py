"""Settings of the C library's allocator."""

from __future__ import annotations

import ctypes

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
