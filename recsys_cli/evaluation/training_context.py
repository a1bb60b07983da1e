"""What models may look at beside a batch, from prepared data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch

from recsys_cli.batch import Batch
from recsys_cli.interactions import Interactions
from recsys_cli.loader import Loader, Tables
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.models.model import TrainingContext
from recsys_cli.workspace import PreparedData

_BATCH_ROWS = 65_536
"""Rows of a batch of whole rows; changes nothing but speed and memory."""


def make_context(
    data: PreparedData,
    *splits: str,
    device: torch.device | str = "cpu",
    tables: Tables | None = None,
    memory: int = 4_096,
    read: Interactions | None = None,
) -> TrainingContext:
    """Return the rows of some splits, read when they are asked for, and the features of users and items.

    Args:
        data: Prepared.
        splits: Whose rows are known: train, or train and valid. Interactions are those that were not drawn.
        device: Where features and batches are wanted.
        tables: Of the same data and on that device, where they are there already.
        memory: How much memory whole rows may take while they are read, in MiB.
        read: What happened in these splits, where that has been read already.
    """

    @cache
    def interactions() -> Interactions:
        if read is not None:
            return read
        first, *others = (read_interactions(data, split, times=True).met() for split in splits)
        for other in others:
            first = first + other
        return first

    def batches() -> Iterator[Batch]:
        for split in splits:
            if data.rows(split):
                yield from Loader(data, split, batch_size=_BATCH_ROWS, device=device, memory=memory)

    tables = tables or Tables(data, device=device)
    return TrainingContext(interactions, tables.join, batches)
