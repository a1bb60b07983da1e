"""Training and validation batches of one rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.loader import Loader
from recsys_cli.loader.order import EpochSteps
from recsys_cli.training.ranks import Ranks
from recsys_cli.workspace import PreparedData

_VALID_BATCH = 32_768
"""Rows per validation batch; affects only speed and memory."""


@dataclass(frozen=True)
class TrainingData:
    """Training batches, of interactions or users, and validation batches of interactions; None without a valid split."""

    train: EpochSteps
    valid: EpochSteps | None = None


def validation_batches(
    data: PreparedData,
    device: torch.device,
    *,
    memory: int,
    ranks: Ranks,
    history_users: npt.NDArray[np.int32] | None = None,
) -> Loader | None:
    """Return a loader of the valid rows of this rank, with a budget in MiB, and times for `history_users`; None without rows."""
    if not data.rows("valid"):
        return None
    size = ranks.world_size
    return Loader(
        data,
        "valid",
        batch_size=_VALID_BATCH * size,
        device=device,
        memory=memory,
        rank=ranks.rank,
        world_size=size,
        times=history_users is not None,
        history_users=history_users,
    )
