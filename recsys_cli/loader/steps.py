"""Base class of loaders: epochs, steps and resumable positions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.loader.order import BatchPartition


class EpochSteps(ABC):
    """Iterable over the batches of an epoch, with steps and parts as in `BatchPartition`.

    An iteration starts at step 0, or at the step of a preceding `load_state_dict`. `set_epoch` selects another order.

    Raises:
        ConfigError: `batch_size` or `rank` is invalid.
    """

    def __init__(self, num_rows: int, *, batch_size: int, rank: int, world_size: int, parts: int) -> None:
        if batch_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(f"a loader cannot have batch_size={batch_size}, rank={rank} of {world_size}")
        self.num_rows, self.batch_size = num_rows, batch_size
        self._partition = BatchPartition(num_rows, batch_size, world_size, parts)
        self._rank = rank
        self._epoch, self._step, self._start = 0, 0, 0

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self._partition.num_steps

    def step_rows(self, step: int) -> int:
        """Return the rows of a step over all ranks."""
        start, stop = self._partition.step(step)
        return stop - start

    def __iter__(self) -> Iterator[Batch]:
        self._step, self._start = self._start, 0
        return self._batches(self._step)

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch of the next iteration; a change of epoch resets the step to 0."""
        if epoch != self._epoch:
            self._epoch, self._step, self._start = epoch, 0, 0

    def state_dict(self) -> dict[str, int]:
        """Return the position: epoch and number of yielded batches."""
        return {"epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Set the start of the next iteration to a position of `state_dict`."""
        self._epoch = int(state["epoch"])
        self._step = self._start = int(state["step"])

    @abstractmethod
    def _batches(self, first: int) -> Iterator[Batch]:
        """Yield this rank's batches of the current epoch from a step on; `_step` counts yielded batches."""
