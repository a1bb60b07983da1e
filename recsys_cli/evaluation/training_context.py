"""The training context of prepared data: interactions, features of ids, and whole rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch

from recsys_cli.batch import Batch
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables, Loader
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.models.model import TrainingContext
from recsys_cli.workspace import PreparedData

_BATCH_ROWS = 65_536
"""Batch size of whole rows; affects only speed and memory."""


def make_context(
    data: PreparedData,
    *splits: str,
    device: torch.device | str = "cpu",
    tables: DimensionTables | None = None,
    memory: int = 4_096,
    read: Interactions | None = None,
) -> TrainingContext:
    """Return the training context of some splits; rows are read on demand.

    Args:
        data: Prepared data.
        splits: `train`, or `train` and `valid`. Sampled negatives are excluded from the interactions.
        device: Device of features and batches.
        tables: Loaded dimension tables of the same data on that device.
        memory: Memory budget of the loader, in MiB.
        read: Loaded interactions of these splits.
    """

    @cache
    def interactions() -> Interactions:
        if read is not None:
            return read
        first, *others = (read_interactions(data, split, times=True).observed() for split in splits)
        for other in others:
            first = first + other
        return first

    def batches() -> Iterator[Batch]:
        for split in splits:
            if data.rows(split):
                yield from Loader(data, split, batch_size=_BATCH_ROWS, device=device, memory=memory)

    tables = tables or DimensionTables(data, device=device)
    return TrainingContext(interactions, tables.join, batches)
