"""Loaders of batches: of interactions, and of user ids for models trained on user histories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged, picked
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import HISTORY_USER, row_column
from recsys_cli.features.hashing import mix
from recsys_cli.features.schema import FIRST, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader.order import EpochSteps, Permutation
from recsys_cli.loader.recent import RecentRows, read_chosen, read_times
from recsys_cli.loader.records import Records, join_spans, layout_of_split, read_records
from recsys_cli.loader.streaming import Resident, Streaming, StreamingEpoch, prefetch
from recsys_cli.loader.tables import DimensionTables
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class PendingBatch:
    """A batch queued on the device, and the event of its completion; None for a complete one."""

    batch: Batch
    ready: torch.cuda.Event | None = None


class SideStream:
    """CUDA stream for the batches of one iteration; a no-op on a CPU.

    Background threads `build` batches: host rows go to pinned memory, reused after its copies, and copies and lookups
    to the side stream. The training thread `take`s them: its stream waits for the event of one batch, without blocking
    the host.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self._stream is not None:  # rows and tables were copied on the stream of the loader's constructor
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def build(self, make: Callable[[], Batch]) -> PendingBatch:
        """Run `make` on the side stream; thread-safe."""
        if self._stream is None:
            return PendingBatch(make())
        with torch.cuda.stream(self._stream):  # the current stream is thread-local
            batch = make()
            ready = torch.cuda.Event()
            ready.record(self._stream)
        return PendingBatch(batch, ready)

    def take(self, pending: PendingBatch) -> Batch:
        """Return the batch; the current stream waits for its completion."""
        if pending.ready is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(pending.ready)
            for tensor in pending.batch.tensors():
                tensor.record_stream(stream)  # keeps the allocator from reusing memory in use on this stream
        return pending.batch

    def close(self) -> None:
        """Let the current stream wait for pending work; rows and tables may be freed afterwards."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


def to_device(column: Feature, device: torch.device) -> Feature:
    """Copy a column to a device; to CUDA from pinned memory, asynchronously."""
    if device.type != "cuda" or _values(column).is_cuda:
        return column
    if isinstance(column, Ragged):
        return column.map(lambda part: part.pin_memory().to(device, non_blocking=True))
    return column.pin_memory().to(device, non_blocking=True)


def _values(column: Feature) -> Tensor:
    return column.values if isinstance(column, Ragged) else column


_MIN, _MAX, _STEPS = 32, 256, 600
"""For an automatic batch size: smallest and largest size, and the lowest number of steps per epoch."""


def auto_batch_size(num_users: int) -> int:
    """Return the batch size of `train.batch_size=auto`, larger for more users.

    Few users need small batches for enough steps per epoch. On Amazon Toys (19,412 users, 607 steps of 32), 12 epochs
    of sasrec reach a valid NDCG@10 of .062 with batches of 32, .061 of 128 and .060 of 256 in about equal CPU time.
    """
    size = _MIN
    while size < _MAX and num_users >= 2 * size * _STEPS:
        size *= 2
    return size


class MemoryLoader(EpochSteps):
    """Batches of given rows, on their device, in an order given by (seed, epoch); options are those of `Loader`.

    Attributes:
        shuffle: Seed offset of the order.
    """

    shuffle: ClassVar[int] = 0x4D52

    def __init__(
        self, rows: Batch, *, batch_size: int, seed: int, rank: int = 0, world_size: int = 1, parts: int = 1
    ) -> None:
        super().__init__(rows.num_rows, batch_size=batch_size, rank=rank, world_size=world_size, parts=parts)
        self._rows, self._seed = rows, seed

    def _batches(self, first: int) -> Iterator[Batch]:
        order = Permutation(self.num_rows, mix(self._seed, self.shuffle, self._epoch))
        for step in range(first, len(self)):
            rows = np.concatenate([order(*span) for span in self._partition.spans(step, self._rank)])
            self._step = step + 1
            yield _picked(self._rows, torch.from_numpy(rows.astype(np.int64)))


def _picked(rows: Batch, index: Tensor) -> Batch:
    """Return some rows of a batch."""
    features = {name: picked(feature, index) for name, feature in rows.features.items()}
    weight = None if rows.weight is None else rows.weight[index.to(rows.weight.device)]
    return Batch(features, {name: label[index.to(label.device)] for name, label in rows.labels.items()}, weight)


class UserLoader(MemoryLoader):
    """Batches of all users with at least two items, in an order given by (seed, epoch).

    A user with a single item has no next item to predict. Step i has the same users for any number of ranks. The only
    feature of a batch is the user id, int32; the main label is 1, for the number of rows. Options are those of
    `Loader`; `batch_size` may be `auto`.

    Raises:
        DataError: No user has two items.
        ConfigError: `batch_size` or `rank` is invalid.
    """

    shuffle = 0x5553

    def __init__(  # noqa: PLR0913 - all but two are keywords with a default
        self,
        interactions: Interactions,
        schema: Schema,
        *,
        batch_size: int | Literal["auto"],
        seed: int = 0,
        device: torch.device | str = "cpu",
        rank: int = 0,
        world_size: int = 1,
        parts: int = 1,
        recent: RecentRows | None = None,
    ) -> None:
        is_warm = (interactions.user_idx >= FIRST) & (interactions.item_idx >= FIRST)
        users = np.flatnonzero(np.bincount(interactions.user_idx[is_warm]) >= 2)
        if recent is not None:
            users = users[recent.chosen(np.isin(users, interactions.user_idx[recent.is_later(interactions.times)]))]
        if not len(users):
            raise DataError(
                "no user of train has two items, so there is no next item to predict",
                hint="check features.user and the split, or train a model of interactions (recsys ls models)",
            )
        size = auto_batch_size(len(users)) if batch_size == "auto" else batch_size
        ids = torch.from_numpy(users.astype(np.int32)).to(device)
        rows = Batch({schema.only(Role.USER).name: ids}, {schema.label.name: torch.ones(len(ids), device=device)})
        super().__init__(rows, batch_size=size, seed=seed, rank=rank, world_size=world_size, parts=parts)


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
        recent: Take only these rows, all resident.

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
        recent: RecentRows | None = None,
    ) -> None:
        schema = data.schema
        self._labels = tuple(column.name for column in schema.labels)
        self._weight = schema.weight.name if schema.weight else None
        layout, groups = layout_of_split(data, split, times=times)
        num_rows = sum(group.num_rows for group in groups)
        chosen = None if recent is None else np.flatnonzero(recent.chosen(recent.is_later(read_times(data, split))))
        num_rows = num_rows if chosen is None else len(chosen)
        super().__init__(num_rows, batch_size=batch_size, rank=rank, world_size=world_size, parts=parts)
        self._device = _known(device)
        self._history_users = None if history_users is None else torch.tensor(history_users)
        self._keys = schema.tables
        self._tables = DimensionTables(data, device=self._device, keys=self._keys)
        budget = memory << 20
        self.resident = chosen is not None or layout.num_bytes(groups) <= budget
        self._source: Resident | Streaming
        if self.resident:
            records = read_records(layout, groups) if chosen is None else read_chosen(layout, groups, chosen, budget)
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

    def _build(self, epoch: Resident | StreamingEpoch, step: int) -> Batch:
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
