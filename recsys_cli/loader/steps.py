"""Where a loader is in which epoch: what all loaders have in common, whatever their rows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.loader.order import BatchPartition


class EpochSteps(ABC):
    """Iterate over the batches of an epoch, from step 0 or from where `load_state_dict` says.

    An iteration begins at step 0, unless `load_state_dict` was called since the last one. The same epoch is the same order:
    call `set_epoch` for another.

    Args:
        num_rows: Rows of an epoch.
        batch_size: Rows of a step, which the ranks share.
        rank: Which of the processes this is.
        world_size: How many processes share the rows.
        parts: How many parts a step is cut into before processes share it: each gets a piece of every part.

    Raises:
        ConfigError: `batch_size` or `rank` is impossible.
    """

    def __init__(self, num_rows: int, *, batch_size: int, rank: int, world_size: int, parts: int) -> None:
        if batch_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(f"a loader cannot have batch_size={batch_size}, rank={rank} of {world_size}")
        self.num_rows, self.batch_size = num_rows, batch_size
        self._deal = BatchPartition(num_rows, batch_size, world_size, parts)
        self._rank = rank
        self._epoch, self._step, self._start = 0, 0, 0

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self._deal.num_steps

    def step_rows(self, step: int) -> int:
        """Return how many rows a step of an epoch has, over all ranks."""
        start, stop = self._deal.step(step)
        return stop - start

    def __iter__(self) -> Iterator[Batch]:
        self._step, self._start = self._start, 0
        return self._batches(self._step)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is of; another than the current one begins at its step 0."""
        if epoch != self._epoch:
            self._epoch, self._step, self._start = epoch, 0, 0

    def state_dict(self) -> dict[str, int]:
        """Return the position: how many batches of the current epoch were handed out."""
        return {"epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next iteration go on from a position that `state_dict` returned."""
        self._epoch = int(state["epoch"])
        self._step = self._start = int(state["step"])

    @abstractmethod
    def _batches(self, first: int) -> Iterator[Batch]:
        """Yield this rank's batches of the current epoch from a step on, setting `_step` to how many were handed out."""
