"""Asynchronous batches on a CUDA device, built on a side stream (torch's documentation of streams)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged


@dataclass(frozen=True)
class PendingBatch:
    """A batch queued on the device, and the event of its completion; None for a complete one."""

    batch: Batch
    ready: torch.cuda.Event | None = None


class SideStream:
    """CUDA stream for the batches of one iteration; a no-op on a CPU.

    Background threads `build` batches: host rows go to pinned memory, reused after its copies, and copies and lookups
    to the side stream. The training thread `take`s them: its stream waits for the event of one batch, without blocking
    the host.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self._stream is not None:  # rows and tables were copied on the stream of the loader's constructor
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def build(self, make: Callable[[], Batch]) -> PendingBatch:
        """Run `make` on the side stream; thread-safe."""
        if self._stream is None:
            return PendingBatch(make())
        with torch.cuda.stream(self._stream):  # the current stream is thread-local
            batch = make()
            ready = torch.cuda.Event()
            ready.record(self._stream)
        return PendingBatch(batch, ready)

    def take(self, pending: PendingBatch) -> Batch:
        """Return the batch; the current stream waits for its completion."""
        if pending.ready is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(pending.ready)
            for tensor in pending.batch.tensors():
                tensor.record_stream(stream)  # keeps the allocator from reusing memory in use on this stream
        return pending.batch

    def close(self) -> None:
        """Let the current stream wait for pending work; rows and tables may be freed afterwards."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


def to_device(column: Feature, device: torch.device) -> Feature:
    """Copy a column to a device; to CUDA from pinned memory, asynchronously."""
    if device.type != "cuda" or _values(column).is_cuda:
        return column
    if isinstance(column, Ragged):
        return column.map(lambda part: part.pin_memory().to(device, non_blocking=True))
    return column.pin_memory().to(device, non_blocking=True)


def _values(column: Feature) -> Tensor:
    return column.values if isinstance(column, Ragged) else column
