"""Rows of embedding tables larger than memory: the page cache holds the hot rows, and the pages of a batch are read in parallel."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.models.embedding import Embeddings
from recsys_cli.models.model import Model

LARGE = 1 << 24
"""Minimum bytes of a large table."""
Take = Callable[[Tensor, Tensor, torch.device], Tensor]
Addresses = npt.NDArray[np.uint64]

_PAGE = mmap.PAGESIZE
_MOST_RANGES = 1024
"""Maximum ranges per call of process_madvise."""
_PROCESS_MADVISE = 440
"""Number of the system call on all architectures of Linux; glibc has a function for it from 2.36 on."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def read_by_page(model: Model, *, large: int = LARGE) -> None:
    """Read rows of a model's large memory-mapped tables without readahead.

    Args:
        model: Its tables are memory-mapped.
        large: Minimum bytes of a large table.
    """
    for module in model.modules():
        if isinstance(module, Embeddings):
            module.take = MappedRows(module.take, large)


class MappedRows:
    """`Embeddings.take` for memory-mapped tables.

    Readahead around a random row evicts hot rows, so it is off; missing pages are requested together, not
    one page fault after another. Other reads of a table, such as of all rows, keep the readahead until a first call.
    """

    def __init__(self, take: Take, large: int) -> None:
        self._take, self._large = take, large
        self._advised: set[int] = set()

    def __call__(self, table: Tensor, ids: Tensor, device: torch.device) -> Tensor:
        """Return `table[ids]` on a device; the ids are ascending."""
        if table.nbytes < self._large:
            return self._take(table, ids, device)
        if table.data_ptr() not in self._advised:
            _without_readahead(table)
            self._advised.add(table.data_ptr())
        starts, sizes = page_ranges(table, ids)
        if sizes.sum() > _PAGE:
            _request(starts, sizes)
        return self._take(table, ids, device)


def page_ranges(table: Tensor, ids: Tensor) -> tuple[Addresses, Addresses]:
    """Return addresses and sizes of the page ranges with some rows of a table; ids and ranges are ascending."""
    width, page = np.uint64(table.stride(0) * table.element_size()), np.uint64(_PAGE)
    first = np.uint64(table.data_ptr()) + ids.numpy().astype(np.uint64) * width
    starts, ends = first // page * page, (first + width + page - np.uint64(1)) // page * page
    apart = starts[1:] > ends[:-1]
    starts, ends = starts[np.append(True, apart)[: len(starts)]], ends[np.append(apart, True)[: len(ends)]]
    return starts, ends - starts


def _without_readahead(table: Tensor) -> None:
    start = -(-table.data_ptr() // _PAGE) * _PAGE
    end = table.data_ptr() + table.nbytes
    _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(max(0, end - start)), mmap.MADV_RANDOM)


def _request(starts: Addresses, sizes: Addresses) -> None:
    """Start to read the missing pages of ranges. Without this system call, page faults read them."""
    if sys.platform != "linux":
        return
    ranges = np.stack([starts, sizes], axis=1)  # an array of struct iovec
    try:
        process = os.pidfd_open(os.getpid())
    except OSError:
        return
    for first in range(0, len(ranges), _MOST_RANGES):
        some = ranges[first : first + _MOST_RANGES]
        address, number = ctypes.c_void_p(some.ctypes.data), ctypes.c_size_t(len(some))
        _LIBC.syscall(_PROCESS_MADVISE, process, address, number, mmap.MADV_WILLNEED, 0)
    os.close(process)
