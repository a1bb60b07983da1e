"""Process group of a training run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from recsys_cli.errors import ConfigError, RecsysError, TrainingError
from recsys_cli.models.all_gather import AllGatherModule
from recsys_cli.models.batch_norm import BatchNorm
from recsys_cli.training.distributed import gradients
from recsys_cli.training.distributed.environment import Member

RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
"""Longest wait of the first process for the last one."""
COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""Longest wait in a collective for an unresponsive rank; long enough for a large checkpoint."""
_CAUSE_TIMEOUT = 1.0
"""Seconds to wait for the error of a failed rank, published just before its connections break."""
_BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
_FAILED = "failed"


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
                hint="use recsys_cli.models.batch_norm.BatchNorm, or set train.devices=1",
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
                gradients.sum_over_ranks(list(model.parameters()))

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
            return gradients.gather_rows(rows)

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
        return gradients.gather(value)


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
    with _translated_errors():
        dist.init_process_group(
            _BACKENDS[device.type], store=dist.PrefixStore("group", store),
            rank=member.rank, world_size=member.world_size, timeout=COLLECTIVE_TIMEOUT,
        )  # fmt: skip
    ranks = Ranks(member.rank, member.world_size)
    try:
        yield ranks
        ranks.any(False)  # a barrier: an early exit would break connections still in use
    except Exception as error:
        if (lost := _lost_rank_error(error)) is not None:
            raise _cause(store, lost) from error
        _publish(store, member, error)
        raise
    finally:
        if device.type == "cpu":  # NCCL would wait for a lost rank; the end of the process frees its resources
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
    keys = [f"here-{rank}" for rank in range(member.world_size)]
    store = None
    try:
        base, _, _ = next(dist.rendezvous("env://", timeout=timeout))
        store = dist.PrefixStore("recsys", base)
        store.set(keys[member.rank], "")
        store.wait(keys, timeout)
    except (RuntimeError, ValueError) as error:
        missing = [] if store is None else [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
        ranks = f"rank {', '.join(missing)} of {member.world_size}" if missing else f"{member.world_size} ranks"
        raise TrainingError(
            f"{ranks} did not join the run within {timeout.total_seconds():.0f} s: {_first_line(error)}",
            hint="check that all processes are started and can reach MASTER_ADDR and MASTER_PORT",
        ) from error
    return store


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
    # Only the first failure is stored.
    _without_store_errors(lambda: store.compare_set(_FAILED, "", json.dumps([member.rank, message, hint])))


def _cause(store: dist.Store, lost: LostRankError) -> LostRankError:
    """Return the published error of the failed rank as a `LostRankError`, or `lost` without one."""

    def read() -> Any:
        until = time.monotonic() + _CAUSE_TIMEOUT
        while not store.check([_FAILED]):  # `wait` would write to stderr on a timeout
            if time.monotonic() > until:
                return None
            time.sleep(0.02)
        return json.loads(store.get(_FAILED))

    published = _without_store_errors(read)
    return lost if published is None else LostRankError(f"rank {published[0]}: {published[1]}", hint=published[2])


def _without_store_errors(call: Any) -> Any:
    """Return the result of a call; None if the store is gone together with its process."""
    try:
        return call()
    except RuntimeError:
        return None


def _first_line(error: Exception) -> str:
    """Return the first sentence of an error, without gloo's source position."""
    line = str(error).strip().partition("\n")[0]
    return re.sub(r"^\[\S+:\d+\] ", "", line).partition(". ")[0]
