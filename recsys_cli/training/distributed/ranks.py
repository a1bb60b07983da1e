"""The processes that train together: how they meet, what they tell each other, and what becomes of it when one is lost."""

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

MEETING = timedelta(minutes=5)
"""How long the first process waits for the last to come."""
SILENCE = timedelta(minutes=10)
"""How long a rank waits in a collective for one that neither comes nor ends; writing a large checkpoint fits into it."""
_LAST_WORDS = 1.0
"""Seconds to wait for what a rank that failed may have to say: it breaks its connections a moment later."""
_BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
_FAILED = "failed"


class LostRankError(TrainingError):
    """A collective failed, because another rank is gone or does not answer: seldom the cause of what went wrong."""


@dataclass(frozen=True)
class Ranks:
    """One process among those that train a model together; alone, everything here does nothing.

    All of them call the same methods in the same order. Values that are looked at, such as sizes, losses and decisions,
    are CPU tensors and go through gloo, which notices at once when a process ends; gradients go where the model is.

    Attributes:
        rank: Which one this is.
        world_size: How many there are.
    """

    rank: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def prepare(self, model: nn.Module) -> None:
        """Give a model the weights that it has on the first rank, and let modules that look at all rows of a step see all ranks'.

        Raises:
            ConfigError: It normalises in a way that cannot see them.
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
                f"the model has {', '.join(sorted(others))}, which normalises the rows of each process apart",
                hint="use recsys_cli.models.batch_norm.BatchNorm, or train.devices=1",
            )
        with _speaking():
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), 0)
        for module in model.modules():
            if isinstance(module, AllGatherModule):
                module.gather, module.rank = gather, self.rank

    @contextmanager
    def whole(self, model: nn.Module) -> Iterator[None]:
        """Undo what a forward pass did to the model's buffers where it is broken off because a rank is lost."""
        before = [buffer.clone() for buffer in model.buffers()] if self.world_size > 1 else []
        try:
            yield
        except LostRankError:
            for buffer, value in zip(model.buffers(), before, strict=True):
                buffer.copy_(value)
            raise

    def sum_gradients(self, model: nn.Module) -> None:
        """Replace each gradient by the sum of that parameter's gradients on all ranks, the same bit for bit on each."""
        if self.world_size > 1:
            with _speaking():
                gradients.add_up(list(model.parameters()))

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over all ranks."""
        if self.world_size == 1:
            return value
        total = value.clone()
        with _speaking():
            dist.all_reduce(total)
        return total

    def any(self, here: bool) -> bool:
        """Whether something is so on any of the ranks."""
        return bool(self.sum(torch.tensor(int(here)))) if self.world_size > 1 else here

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Return the rows of all ranks, in the order of the ranks; as many on each as there happen to be.

        Args:
            rows: Shape (n, ...), with another n on each rank.
        """
        if self.world_size == 1:
            return rows
        with _speaking():
            return gradients.gather_rows(rows)

    def union(self, names: Sequence[str]) -> list[str]:
        """Return the names that any rank has, each once, sorted."""
        text = "".join(f"{name}\n" for name in names).encode()
        every = self.gather_rows(torch.tensor(list(text), dtype=torch.uint8))
        return sorted(set(bytes(every.tolist()).decode().splitlines()))

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Make sure that something is the same on all ranks, such as what they read.

        Raises:
            TrainingError: It is another thing here than on the first rank.
        """
        first = self.from_first(facts)
        others = [
            f"{name} is {facts[name]} and {first[name]} on rank 0" for name in first if facts[name] != first[name]
        ]
        if others:
            raise TrainingError(
                f"rank {self.rank}: {'; '.join(others)}",
                hint="start all processes with the same config, and give them the same workspace",
            )

    def from_first(self, value: Any) -> Any:
        """Return what the first rank has: a value that JSON can hold."""
        if self.world_size == 1:
            return value
        text = torch.tensor(list(json.dumps(value).encode()) if self.is_first else [], dtype=torch.uint8)
        return json.loads(bytes(self.gather_rows(text).tolist()))


def gather(value: Tensor) -> Tensor:
    """Return a tensor of all ranks, of one shape on each; shape (ranks, ...). No gradient flows through it."""
    with _speaking():
        return gradients.gather(value)


@contextmanager
def joined(member: Member, device: torch.device, *, patience: timedelta = MEETING) -> Iterator[Ranks]:
    """Meet the other processes of the run, and part from them at the end.

    A rank that fails says so to the others, so that they raise its error instead of that of a broken connection.

    Args:
        member: Which process this is.
        device: Where it trains.
        patience: How long to wait for the others.

    Raises:
        TrainingError: Not all of them came; or another one failed, with what it said.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = _meet(member, patience)
    with _speaking():
        dist.init_process_group(
            _BACKENDS[device.type], store=dist.PrefixStore("group", store),
            rank=member.rank, world_size=member.world_size, timeout=SILENCE,
        )  # fmt: skip
    ranks = Ranks(member.rank, member.world_size)
    try:
        yield ranks
        ranks.any(False)  # whoever leaves first would break the connections that others still use
    except Exception as error:
        if (lost := _lost(error)) is not None:
            raise _cause(store, lost) from error
        _tell(store, member, error)
        raise
    finally:
        if device.type == "cpu":  # NCCL would wait for what is lost; the end of the process frees it
            dist.destroy_process_group()


@contextmanager
def alone(device: torch.device) -> Iterator[Ranks]:
    """Be a process group of one: for tables that are sharded, which ask for a group whatever its size.

    Args:
        device: Where this process trains.
    """
    dist.init_process_group(_BACKENDS[device.type], store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield Ranks()
    finally:
        dist.destroy_process_group()


def _meet(member: Member, patience: timedelta) -> dist.Store:
    """Return the store through which the processes find each other, once all of them are there."""
    everyone = [f"here-{rank}" for rank in range(member.world_size)]
    store = None
    try:
        found, _, _ = next(dist.rendezvous("env://", timeout=patience))
        store = dist.PrefixStore("recsys", found)
        store.set(everyone[member.rank], "")
        store.wait(everyone, patience)
    except (RuntimeError, ValueError) as error:
        missing = [] if store is None else [str(r) for r, key in enumerate(everyone) if not store.check([key])]
        who = f"rank {', '.join(missing)} of {member.world_size}" if missing else f"{member.world_size} ranks"
        raise TrainingError(
            f"{who} did not come together within {patience.total_seconds():.0f} s: {_first_line(error)}",
            hint="look whether all processes were started, and whether MASTER_ADDR and MASTER_PORT can be reached from each",
        ) from error
    return store


@contextmanager
def _speaking() -> Iterator[None]:
    """Turn an error of torch.distributed into one of ours."""
    try:
        yield
    except RuntimeError as error:
        raise _gone(error) from error


def _lost(error: Exception) -> LostRankError | None:
    """Return what an error says of a rank that is gone; TorchRec, which speaks for itself, leaves torch's errors as they are."""
    if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
        return _gone(error)
    return error if isinstance(error, LostRankError) else None


def _gone(error: Exception) -> LostRankError:
    return LostRankError(f"another rank of this run is gone: {_first_line(error)}", hint="recsys train --resume")


def _tell(store: dist.Store, member: Member, error: Exception) -> None:
    message = error.message if isinstance(error, RecsysError) else f"{type(error).__name__}: {error}"
    hint = error.hint if isinstance(error, RecsysError) else None
    # The first to fail is the one to hear.
    _quietly(lambda: store.compare_set(_FAILED, "", json.dumps([member.rank, message, hint])))


def _cause(store: dist.Store, lost: LostRankError) -> LostRankError:
    """Return an error with what the rank that failed said, where it said something; its own error, if it is heard, says more."""

    def listen() -> Any:
        until = time.monotonic() + _LAST_WORDS
        while not store.check([_FAILED]):  # `wait` would write to stderr when the time is over
            if time.monotonic() > until:
                return None
            time.sleep(0.02)
        return json.loads(store.get(_FAILED))

    said = _quietly(listen)
    return lost if said is None else LostRankError(f"rank {said[0]}: {said[1]}", hint=said[2])


def _quietly(do: Any) -> Any:
    """Do what need not succeed: the store may be gone with the process that held it."""
    try:
        return do()
    except RuntimeError:
        return None


def _first_line(error: Exception) -> str:
    """Return what an error says, without where in gloo it was found and what is typical of it."""
    line = str(error).strip().partition("\n")[0]
    return re.sub(r"^\[\S+:\d+\] ", "", line).partition(". ")[0]
