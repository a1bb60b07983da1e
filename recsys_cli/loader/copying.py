"""Batches on a CUDA device without waiting for them: built on a stream of their own while the model computes on its own one.

CUDA parts are written after torch's documentation of streams and have not been run: this project had no GPU so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged


@dataclass(frozen=True)
class PendingBatch:
    """A batch that a background thread has asked the device for, and the event after which it is there (None: it is)."""

    batch: Batch
    ready: torch.cuda.Event | None = None


class SideStream:
    """Where the batches of one iteration are built; on a CPU it does nothing.

    Background threads `build`: host rows go to pinned memory, copies and lookups are queued on the side stream, and nothing
    waits but what needs a number from the device, in its own thread. Who computes `take`s: its stream waits for the event
    of that batch alone, on the device, while the host goes on. As many batches are on their way as the loader prefetches,
    so in steady state the event has passed. Pinned memory is torch's, which keeps a block until the copies from it are
    done and then hands it out again, so after the first batches none is allocated.

    Args:
        device: Where the batches are wanted.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self._stream is not None:  # rows and tables were brought there on the stream of who made the loader
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def build(self, make: Callable[[], Batch]) -> PendingBatch:
        """Run `make` with its work on the device queued on the side stream; called by any thread."""
        if self._stream is None:
            return PendingBatch(make())
        with torch.cuda.stream(self._stream):  # what is current is so for one thread
            batch = make()
            ready = torch.cuda.Event()
            ready.record(self._stream)
        return PendingBatch(batch, ready)

    def take(self, built: PendingBatch) -> Batch:
        """Return the batch for use on the current stream, which waits until it is there."""
        if built.ready is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(built.ready)
            for tensor in built.batch.tensors():
                tensor.record_stream(stream)  # so that its memory is not given to a later batch while it is in use here
        return built.batch

    def close(self) -> None:
        """Let the current stream wait for what was begun: what it reads, rows and tables, may be freed after this."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


def to_device(column: Feature, device: torch.device) -> Feature:
    """Bring a column to where it is wanted; from pinned memory where that is CUDA, so that the copy waits for nothing."""
    if device.type != "cuda" or _values(column).is_cuda:
        return column
    if isinstance(column, Ragged):
        return column.map(lambda part: part.pin_memory().to(device, non_blocking=True))
    return column.pin_memory().to(device, non_blocking=True)


def _values(column: Feature) -> Tensor:
    return column.values if isinstance(column, Ragged) else column
