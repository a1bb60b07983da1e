"""The training context of prepared data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch

from recsys_cli.batch import Batch
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables, Loader
from recsys_cli.loader.interactions import read_observed
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
    """Return the training context of some splits, without sampled negatives; rows are read on demand.

    `read` are loaded interactions of these splits, `tables` loaded dimension tables on the device; `memory` is in
    MiB.
    """

    @cache
    def interactions() -> Interactions:
        return read_observed(data, *splits) if read is None else read

    def batches() -> Iterator[Batch]:
        for split in splits:
            if data.rows(split):
                yield from Loader(data, split, batch_size=_BATCH_ROWS, device=device, memory=memory)

    tables = tables or DimensionTables(data, device=device)
    return TrainingContext(interactions, tables.join, batches)
