"""Training and validation batches of one rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from recsys_cli.batch import Batch
from recsys_cli.loader import Loader
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.workspace import PreparedData

_VALID_BATCH = 32_768
"""Rows per validation batch; affects only speed and memory."""


class Batches(Protocol):
    """Interface between loader and trainer."""

    num_rows: int

    @property
    def batch_size(self) -> int:
        """Rows of a step, over all ranks."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int: ...

    def step_rows(self, step: int) -> int:
        """Return the number of rows of a step of an epoch, over all ranks."""

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch, and thus the order, of the next iteration."""

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Set the start of the next iteration: {"epoch", "step"}."""


@dataclass(frozen=True)
class TrainingData:
    """Batches of a training run.

    Attributes:
        train: Training batches: interactions or users.
        valid: Validation batches of interactions; None without a valid split.
    """

    train: Batches
    valid: Batches | None = None


def validation_batches(data: PreparedData, device: torch.device, *, memory: int, ranks: Ranks) -> Loader | None:
    """Return a loader of this rank's share of the valid split; None without such a split.

    Args:
        data: Prepared data.
        device: Device of the batches.
        memory: Budget of the loader in MiB.
        ranks: Processes of the run.
    """
    if not data.rows("valid"):
        return None
    size = ranks.world_size
    return Loader(
        data, "valid", batch_size=_VALID_BATCH * size, device=device, memory=memory, rank=ranks.rank, world_size=size
    )
