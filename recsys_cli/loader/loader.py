"""The loader that training and evaluation iterate over: it knows where it is in which epoch, and puts batches together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.features.columns import row_column
from recsys_cli.loader.copying import PendingBatch, SideStream, to_device
from recsys_cli.loader.footprint import contents
from recsys_cli.loader.prefetch import prefetch
from recsys_cli.loader.ragged import join
from recsys_cli.loader.records import Records, read_records
from recsys_cli.loader.resident import Resident, ResidentEpoch
from recsys_cli.loader.steps import EpochSteps
from recsys_cli.loader.streaming import Streaming, StreamingEpoch
from recsys_cli.loader.tables import DimensionTables
from recsys_cli.workspace import PreparedData

_DEPTH = 4
"""Batches that are ready or being built, beside the one in use."""


class Loader(EpochSteps):
    """Iterate over the batches of a split, once each epoch, in an order that (seed, epoch) decides.

    A split that fits into `memory` is read once and kept, and shuffled over all rows. A larger one is streamed: parts of
    the files in random order, as many at a time as fit into a third of `memory`, and the rows of those shuffled. Its
    order depends on `memory` too. Neither depends on the number of ranks: step i is the same rows however many share it
    (see `order.Deal` for how). All ranks read all files when streaming, each with its own `memory`.

    Args:
        data: What `recsys etl` wrote.
        split: Name of the split.
        batch_size: Rows of a step, which the ranks share.
        shuffle: Whether to shuffle; otherwise rows come in the order of the files.
        seed: Decides the order.
        device: Where the batches are wanted.
        memory: How much memory rows may take, in MiB.
        rank: Which of the processes this is.
        world_size: How many processes share the rows.
        parts: How many parts a step is cut into before processes share it: each gets a piece of every part.

    Raises:
        DataError: The files are not what schema.json says, or there are no rows to train on.
        ConfigError: `batch_size`, `rank` or `memory` is impossible.
    """

    def __init__(  # noqa: PLR0913 - all but two are keywords with a default
        self,
        data: PreparedData,
        split: str,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        memory: int = 4096,
        rank: int = 0,
        world_size: int = 1,
        parts: int = 1,
    ) -> None:
        schema = data.schema
        self._labels = tuple(column.name for column in schema.labels)
        self._weight = schema.weight.name if schema.weight else None
        layout, groups = contents(data, split)
        num_rows = sum(group.num_rows for group in groups)
        super().__init__(num_rows, batch_size=batch_size, rank=rank, world_size=world_size, parts=parts)
        self._device = torch.device(device)
        self._keys = schema.tables
        self._tables = DimensionTables(data, device=self._device, keys=self._keys)
        budget = memory << 20
        self.resident = layout.num_bytes(groups) <= budget
        self._source: Resident | Streaming
        if self.resident:
            records = read_records(layout, groups)
            self._source = Resident(_on_device(records, self._device), seed=seed if shuffle else None)
        else:
            self._source = Streaming(layout, groups, budget=budget, seed=seed if shuffle else None)

    def _batches(self, first: int) -> Iterator[Batch]:
        epoch, side = self._source.epoch(self._epoch), SideStream(self._device)

        def build(step: int) -> PendingBatch:
            return side.build(lambda: self._build(epoch, step))

        built = prefetch(build, range(first, len(self)), threads=epoch.threads, depth=_DEPTH)
        try:
            for step, one in enumerate(built, first + 1):
                self._step = step
                yield side.take(one)
        finally:
            built.close()
            epoch.close()
            side.close()

    def _build(self, epoch: ResidentEpoch | StreamingEpoch, step: int) -> Batch:
        spans = [epoch.rows(*span) for span in self._deal.spans(step, self._rank)]
        rows = spans[0] if len(spans) == 1 else {name: join([span[name] for span in spans]) for name in spans[0]}
        rows = {name: to_device(column, self._device) for name, column in rows.items()}
        labels = {name: cast(Tensor, rows.pop(name)) for name in self._labels}
        weight = None if self._weight is None else cast(Tensor, rows.pop(self._weight))
        of_tables = {key: cast(Tensor, rows.pop(row_column(key), rows[key])) for key in self._keys if key in rows}
        return Batch({**self._tables.features(of_tables), **rows}, labels, weight)


def _on_device(records: Records, device: torch.device) -> Records:
    """Keep the rows on the device if they take no more than half of what is free there (CUDA: not run here yet)."""
    if device.type != "cuda":
        return records
    free, _ = torch.cuda.mem_get_info(device)
    return records.to(device) if records.num_bytes <= free // 2 else records
