"""How the C library hands out memory to the tensors of a step, of training or of a ranking."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names of settings in malloc.h."""
_KEPT = 1 << 30
"""Bytes of a block that is kept when it is freed, at most: more than a step's tensors, less than large tables."""
_NEVER = (1 << 31) - 1


def keep_freed_memory() -> None:
    """Let this process keep the memory of freed tensors for the next ones: for whoever makes the same tensors in every step.

    glibc gives blocks of 32 MiB and more back to the kernel when they are freed, and the next one comes as fresh pages that
    the kernel fills with zeros as they are touched: 45,000 of them in a step of the Merlin notebook's network, a seventh
    of its time on two cores. Afterwards the process keeps the most memory that it ever had at once. Values do not change;
    without glibc nothing does.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT)
    mallopt(_M_TRIM_THRESHOLD, _NEVER)
