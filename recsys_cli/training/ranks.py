"""Processes of a run: membership, collectives, sums of gradients, and failures of a rank."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from recsys_cli.errors import ConfigError, RecsysError, TrainingError
from recsys_cli.models.layers import AllGatherModule, BatchNorm
from recsys_cli.training.member import Member
from recsys_cli.training.row_optimizers import of_rows, rows_of

_BUCKET = 1 << 23
"""Approximate elements of a message: smaller gradients share one, a larger one is sent without a copy."""
_NONE, _DENSE = -2, -1
"""Codes for no gradient and a dense gradient, in place of the number of rows of a sparse one."""


def sum_over_ranks(parameters: Sequence[nn.Parameter]) -> None:
    """Replace the gradient of each parameter, the same on every rank, by its sum over all ranks.

    A gradient missing on some ranks counts as zero there; one missing on all ranks stays missing.
    """
    kinds = torch.tensor([_num_rows(parameter) for parameter in parameters])
    everywhere = all_gather(kinds)
    dense = (everywhere == _DENSE).any(0).tolist()
    sparse = (everywhere >= 0).any(0)
    _sum_dense([parameter for parameter, one in zip(parameters, dense, strict=True) if one])
    tables = [parameter for parameter, one in zip(parameters, sparse.tolist(), strict=True) if one]
    if tables:
        _sum_sparse(tables, everywhere[:, sparse].clamp(min=0))


def all_gather(value: Tensor) -> Tensor:
    """Gather a tensor of the same shape from all ranks; shape (ranks, ...)."""
    everywhere = value.new_empty((dist.get_world_size(), *value.shape))
    dist.all_gather(list(everywhere.unbind()), value.contiguous())
    return everywhere


def _num_rows(parameter: nn.Parameter) -> int:
    if parameter.grad is None:
        return _NONE
    if not parameter.grad.is_sparse:
        return _DENSE
    return rows_of(parameter)[0].numel()


def _sum_dense(parameters: Sequence[nn.Parameter]) -> None:
    gradients = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    for bucket in _buckets(gradients):
        if len(bucket) == 1 and bucket[0].is_contiguous():
            dist.all_reduce(bucket[0])
            continue
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Group consecutive gradients of one dtype up to the size of a message."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        size = sum(one.numel() for one in bucket) + gradient.numel()
        if bucket and (size > _BUCKET or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


def _sum_sparse(tables: Sequence[nn.Parameter], counts: Tensor) -> None:
    """Sum the gradients of tables, with counts of rows of shape (ranks, tables): one message for all ids and one for all rows."""
    widths = torch.tensor([table.shape[1] for table in tables])
    local = [_ids_and_rows(table) for table in tables]
    every_ids = _gather_uneven(torch.cat([ids for ids, _ in local]), counts.sum(1).tolist())
    flat = torch.cat([values.reshape(-1) for _, values in local])
    every_values = _gather_uneven(flat, (counts * widths).sum(1).tolist())
    ids_by_rank = [ids.split(sizes) for ids, sizes in zip(every_ids, counts.tolist(), strict=True)]
    values_by_rank = [one.split(sizes) for one, sizes in zip(every_values, (counts * widths).tolist(), strict=True)]
    for number, table in enumerate(tables):
        ids = [by_table[number] for by_table in ids_by_rank]
        rows = [by_table[number].view(-1, table.shape[1]) for by_table in values_by_rank]
        table.grad = _merged(ids, rows, table)


def _ids_and_rows(table: nn.Parameter) -> tuple[Tensor, Tensor]:
    if table.grad is None:
        return torch.empty(0, dtype=torch.int64, device=table.device), table.new_empty((0, table.shape[1]))
    return table.grad._indices()[0], table.grad._values()


def _merged(ids: Sequence[Tensor], rows: Sequence[Tensor], table: nn.Parameter) -> Tensor:
    """Sum rows by id, rank by rank: without repeated ids in an addition, GPUs add in a fixed order too."""
    distinct = _distinct(torch.cat(list(ids)))
    total = rows[0].new_zeros((distinct.numel(), table.shape[1]))
    for rank_ids, rank_rows in zip(ids, rows, strict=True):
        total.index_add_(0, torch.searchsorted(distinct, rank_ids), rank_rows)
    return of_rows(distinct, total, table.shape)


def _distinct(ids: Tensor) -> Tensor:
    if ids.device.type == "cpu":  # numpy's vectorized sort is over ten times faster than torch's here
        return torch.from_numpy(np.unique(ids.numpy()))
    return torch.unique(ids)


def _gather_uneven(local: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Gather a tensor of shape (count, ...) from each rank, padded because all_gather needs equal shapes."""
    longest = max(counts)
    if not longest:
        return [local] * len(counts)
    padded = local.new_zeros((longest, *local.shape[1:]))
    padded[: local.shape[0]] = local
    return [part[:count] for part, count in zip(all_gather(padded), counts, strict=True)]


RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
"""Longest wait of the first process for the last one."""
COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""Longest wait in a collective for an unresponsive rank; long enough for a large checkpoint."""
_CAUSE_TIMEOUT = 1.0
"""Seconds to wait for the error of a failed rank, published just before its connections break."""
_BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
_FAILED = "failed"
_PROPOSED, _STARTED = "recsys proposed", "recsys started"
"""Keys of the numbers of all processes in a group."""
_JOINING = 0.02
"""Seconds between two looks for the other ranks."""


class LostRankError(TrainingError):
    """A collective failed, because another rank is gone or unresponsive; usually not the root cause."""


@dataclass(frozen=True)
class Ranks:
    """This process in the process group of a run. With a world size of 1, all methods are no-ops.

    All ranks call the same methods in the same order. Sizes, losses and decisions are CPU tensors and use gloo, which
    detects the end of a process at once; gradients are exchanged on the device of the model.
    """

    rank: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the first rank, the one with output."""
        return self.rank == 0

    def prepare(self, model: nn.Module) -> None:
        """Broadcast the weights of the first rank, and connect modules with statistics over all rows to all ranks.

        A `ConfigError` for a batch normalization without support for several ranks.
        """
        if self.world_size == 1:
            return
        others = {
            type(module).__name__
            for module in model.modules()
            if isinstance(module, _BatchNorm) and not isinstance(module, BatchNorm)
        }
        if others:
            raise ConfigError(
                f"the model has {', '.join(sorted(others))}, which normalizes the rows of each process separately",
                hint="use recsys_cli.models.layers.BatchNorm, or set train.devices=1",
            )
        with _translated_errors():
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), 0)
        for module in model.modules():
            if isinstance(module, AllGatherModule):
                module.gather, module.rank = gather, self.rank

    @contextmanager
    def restore_buffers(self, model: nn.Module) -> Iterator[None]:
        """Restore the buffers of a model if a block fails with the loss of a rank."""
        before = [buffer.clone() for buffer in model.buffers()] if self.world_size > 1 else []
        try:
            yield
        except LostRankError:
            for buffer, value in zip(model.buffers(), before, strict=True):
                buffer.copy_(value)
            raise

    def sum_gradients(self, model: nn.Module) -> None:
        """Replace each gradient by its sum over all ranks, equal bit for bit on all of them."""
        if self.world_size > 1:
            with _translated_errors():
                sum_over_ranks(list(model.parameters()))

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over all ranks."""
        if self.world_size == 1:
            return value
        total = value.clone()
        with _translated_errors():
            dist.all_reduce(total)
        return total

    def any(self, flag: bool) -> bool:
        """Return whether any rank sets the flag."""
        return bool(self.sum(torch.tensor(int(flag)))) if self.world_size > 1 else flag

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Concatenate the rows of all ranks in rank order; shape (n, ...), n may differ by rank."""
        if self.world_size == 1:
            return rows
        with _translated_errors():
            counts = all_gather(torch.tensor([rows.shape[0]])).flatten().tolist()
            return torch.cat(_gather_uneven(rows, counts))

    def union(self, names: Sequence[str]) -> list[str]:
        """Return the sorted union of the names of all ranks."""
        text = "".join(f"{name}\n" for name in names).encode()
        every = self.gather_rows(torch.tensor(list(text), dtype=torch.uint8))
        return sorted(set(bytes(every.tolist()).decode().splitlines()))

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Check that facts by name are equal on all ranks; a `TrainingError` on a rank that differs from the first."""
        first = self.from_first(facts)
        others = [
            f"{name} is {facts[name]} and {first[name]} on rank 0" for name in first if facts[name] != first[name]
        ]
        if others:
            raise TrainingError(
                f"rank {self.rank}: {'; '.join(others)}", hint="start all processes with the same config and workspace"
            )

    def from_first(self, value: Any) -> Any:
        """Return the first rank's value, of JSON types."""
        if self.world_size == 1:
            return value
        text = torch.tensor(list(json.dumps(value).encode()) if self.is_first else [], dtype=torch.uint8)
        return json.loads(bytes(self.gather_rows(text).tolist()))


def gather(value: Tensor) -> Tensor:
    """Gather a tensor of the same shape from all ranks, without gradient; shape (ranks, ...)."""
    with _translated_errors():
        return all_gather(value)


@contextmanager
def process_group(member: Member, device: torch.device, *, timeout: timedelta = RENDEZVOUS_TIMEOUT) -> Iterator[Ranks]:
    """Join the process group of a run for the duration of a block.

    A failed rank publishes its error, and the others raise it in place of a broken connection.

    Raises:
        TrainingError: Not all processes joined within `timeout`, or another one failed.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = _rendezvous(member, timeout)
    ranks = Ranks(member.rank, member.world_size)
    try:
        with _translated_errors():
            dist.init_process_group(
                _BACKENDS[device.type], store=dist.PrefixStore("group", store),
                rank=member.rank, world_size=member.world_size, timeout=COLLECTIVE_TIMEOUT,
            )  # fmt: skip
        yield ranks
        ranks.any(False)  # a barrier: an early exit would break connections still in use
    except Exception as error:
        if (lost := _lost_rank_error(error)) is not None:
            raise _cause(store, lost) from error
        _publish(store, member, error)
        raise
    finally:
        # NCCL would wait for a lost rank; the end of the process frees its resources.
        if device.type == "cpu" and dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def local_process_group(device: torch.device) -> Iterator[Ranks]:
    """Create a process group of this process only, as sharded tables require a group of any size."""
    dist.init_process_group(_BACKENDS[device.type], store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield Ranks()
    finally:
        dist.destroy_process_group()


def _rendezvous(member: Member, timeout: timedelta) -> dist.Store:
    """Return a store of this start of the run, once all ranks have joined.

    torchrun keeps one store over its restarts, with addresses of dead processes. So each process joins with a new number, the
    first rank proposes the numbers of all until each has found its own and accepted, and the store's keys begin with its number.
    """
    keys = {what: [f"recsys {what} {rank}" for rank in range(member.world_size)] for what in ("here", "accepted")}
    number, until = uuid.uuid4().hex.encode(), time.monotonic() + timeout.total_seconds()
    missing, cause = f"{member.world_size} ranks", None
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=timeout))
        store.set(keys["here"][member.rank], number)
        while time.monotonic() < until:
            if member.is_first and store.check(keys["here"]):
                numbers = store.multi_get(keys["here"])
                store.set(_PROPOSED, b" ".join(numbers))
                if store.check(keys["accepted"]) and set(store.multi_get(keys["accepted"])) == {b" ".join(numbers)}:
                    store.set(_STARTED, b" ".join(numbers))
            proposed, started = (store.get(key).split() if store.check([key]) else [] for key in (_PROPOSED, _STARTED))
            if number in started:
                return dist.PrefixStore(f"recsys {started[0].decode()}", store)
            if number in proposed:
                store.set(keys["accepted"][member.rank], b" ".join(proposed))
            time.sleep(_JOINING)
        absent = [str(rank) for rank, key in enumerate(keys["here"]) if not store.check([key])]
        missing = f"rank {', '.join(absent)} of {member.world_size}" if absent else missing
    except (RuntimeError, ValueError) as error:
        cause = error
    raise TrainingError(
        f"{missing} did not join the run within {timeout.total_seconds():.0f} s{f': {_first_line(cause)}' if cause else ''}",
        hint="check that all processes are started and can reach MASTER_ADDR and MASTER_PORT",
    ) from cause


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise errors of torch.distributed as `LostRankError`."""
    try:
        yield
    except RuntimeError as error:
        raise _as_lost_rank(error) from error


def _lost_rank_error(error: Exception) -> LostRankError | None:
    """Return the error of a lost rank, None for another error; TorchRec raises torch's errors untranslated."""
    if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
        return _as_lost_rank(error)
    return error if isinstance(error, LostRankError) else None


def _as_lost_rank(error: Exception) -> LostRankError:
    return LostRankError(f"another rank of this run is gone: {_first_line(error)}", hint="recsys train --resume")


def _publish(store: dist.Store, member: Member, error: Exception) -> None:
    message = error.message if isinstance(error, RecsysError) else f"{type(error).__name__}: {error}"
    hint = error.hint if isinstance(error, RecsysError) else None
    with suppress(RuntimeError):  # the store may be gone together with its process
        store.compare_set(_FAILED, "", json.dumps([member.rank, message, hint]))  # only the first failure is stored


def _cause(store: dist.Store, lost: LostRankError) -> LostRankError:
    """Return the published error of the failed rank as a `LostRankError`, or `lost` without one."""
    until = time.monotonic() + _CAUSE_TIMEOUT
    with suppress(RuntimeError):
        while time.monotonic() < until:
            if store.check([_FAILED]):  # `wait` would write to stderr on a timeout
                rank, message, hint = json.loads(store.get(_FAILED))
                return LostRankError(f"rank {rank}: {message}", hint=hint)
            time.sleep(0.02)
    return lost


def _first_line(error: Exception) -> str:
    """Return the first sentence of an error, without gloo's source position."""
    line = str(error).strip().partition("\n")[0]
    return re.sub(r"^\[\S+:\d+\] ", "", line).partition(". ")[0]
