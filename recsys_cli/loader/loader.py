"""Loader of interaction batches for training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import HISTORY_USER, row_column
from recsys_cli.loader.copying import PendingBatch, SideStream, to_device
from recsys_cli.loader.order import EpochSteps
from recsys_cli.loader.records import Records, join_spans, layout_of_split, read_records
from recsys_cli.loader.streaming import Resident, ResidentEpoch, Streaming, StreamingEpoch, prefetch
from recsys_cli.loader.tables import DimensionTables
from recsys_cli.workspace import PreparedData

_DEPTH = 4
"""Prefetched batches, complete or in progress, besides the current one."""


class Loader(EpochSteps):
    """Batches of a split, in an order given by (seed, epoch).

    A split within the memory budget is resident and shuffled over all rows. A larger one is streamed: row groups in
    random order, a window of a third of the budget at a time, with shuffled rows inside the window; the order then
    depends on `memory` too. Step i has the same rows for any number of ranks (`BatchPartition`). In streaming, each
    rank reads all files with its own budget.

    Args:
        data: Prepared data.
        split: Name of the split.
        batch_size: Rows of a step over all ranks.
        shuffle: False for the order of the files.
        memory: Budget for rows in MiB.
        parts: Parts of a step (gradient accumulation); each rank gets a piece of every part.
        times: Add the timestamps, int64 or float64, to the features.
        history_users: Users of the split's rows in file order, added to the features as HISTORY_USER; not with `shuffle`.

    Raises:
        DataError: A file does not match schema.json, or train has no rows.
        ConfigError: `batch_size`, `rank` or `memory` is invalid.
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
        times: bool = False,
        history_users: npt.NDArray[np.int32] | None = None,
    ) -> None:
        schema = data.schema
        self._labels = tuple(column.name for column in schema.labels)
        self._weight = schema.weight.name if schema.weight else None
        layout, groups = layout_of_split(data, split, times=times)
        num_rows = sum(group.num_rows for group in groups)
        super().__init__(num_rows, batch_size=batch_size, rank=rank, world_size=world_size, parts=parts)
        self._device = _known(device)
        self._history_users = None if history_users is None else torch.tensor(history_users)
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

        pending = prefetch(build, range(first, len(self)), threads=epoch.threads, depth=_DEPTH)
        try:
            for step, batch in enumerate(pending, first + 1):
                self._step = step
                yield side.take(batch)
        finally:
            pending.close()
            epoch.close()
            side.close()

    def _build(self, epoch: ResidentEpoch | StreamingEpoch, step: int) -> Batch:
        spans = self._partition.spans(step, self._rank)
        rows = join_spans([epoch.rows(*span) for span in spans])
        if self._history_users is not None:
            rows[HISTORY_USER] = torch.cat([self._history_users[start:stop] for start, stop in spans])
        rows = {name: to_device(column, self._device) for name, column in rows.items()}
        labels = {name: cast(Tensor, rows.pop(name)) for name in self._labels}
        weight = None if self._weight is None else cast(Tensor, rows.pop(self._weight))
        table_rows = {key: cast(Tensor, rows.pop(row_column(key), rows[key])) for key in self._keys if key in rows}
        return Batch({**self._tables.features(table_rows), **rows}, labels, weight)


def _on_device(records: Records, device: torch.device) -> Records:
    """Move the rows to the GPU if they take at most half of its free memory."""
    if device.type != "cuda":
        return records
    free, _ = torch.cuda.mem_get_info(device)
    return records.to(device) if records.num_bytes <= free // 2 else records


def _known(device: torch.device | str) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"device {str(device)!r:.60}: {reason:.200}", hint="use cpu, cuda or cuda:N") from error
