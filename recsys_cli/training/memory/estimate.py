"""Memory estimate of training: exact sizes of parameters and optimizer state, a probe scaled to the batch, the rows of the data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from recsys_cli.config import Placement, TrainConfig
from recsys_cli.models.model import Model
from recsys_cli.training import optimizers
from recsys_cli.training.memory.probe import MemoryProbe, num_bytes, table_names
from recsys_cli.training.rows import RowOptimizer

Kind = Literal["host", "device"]
_READY = 5
"""Batches that a loader has at a time: the one in use, and those that are ready or being built."""


@dataclass(frozen=True)
class TableMemory:
    """One embedding table, in bytes.

    Attributes:
        name: Path of its module in the model.
        rows: Its rows.
        width: Elements of a row.
        weights: The table itself.
        state: Its optimizer state.
        gradient: Its gradient: as large as the table, or with `train.sparse_embeddings` the rows of the batch alone.
    """

    name: str
    rows: int
    width: int
    weights: int
    state: int
    gradient: int


@dataclass(frozen=True)
class ModelMemory:
    """Memory of a model in training, in bytes.

    Attributes:
        tables: The embedding tables, the largest first.
        dense: All other parameters, and buffers.
        dense_state: Their optimizer state.
        dense_gradient: Their gradients.
        average: The moving average of the weights; 0 without one.
    """

    tables: tuple[TableMemory, ...]
    dense: int
    dense_state: int
    dense_gradient: int
    average: int


@dataclass(frozen=True)
class DataMemory:
    """Memory of the rows of the data, in bytes.

    Attributes:
        train: All rows of train.
        valid: All rows of valid.
        joined: Dimension tables, for lookup joins of each batch.
    """

    train: int
    valid: int
    joined: int


@dataclass(frozen=True)
class Hardware:
    """The hardware to train on.

    Attributes:
        on_gpu: Whether the model is on a GPU.
        placement: Of its embedding tables.
        processes: Ranks on this machine.
        free: Free bytes of the GPU.
    """

    on_gpu: bool = False
    placement: Placement = "device"
    processes: int = 1
    free: int = 0


@dataclass(frozen=True)
class MemoryItem:
    """One line of the estimate.

    Attributes:
        what: Its name.
        place: Memory of the host, or of a GPU.
        num_bytes: Size; on the host the sum over all processes, on a GPU for each.
        note: A remark on it.
    """

    what: str
    place: Kind
    num_bytes: int
    note: str = ""


def model_memory(model: Model, config: TrainConfig, tried: MemoryProbe) -> ModelMemory:
    """Measure a model on the meta device.

    Args:
        model: With all its rows.
        config: How to train.
        tried: Memory of a step.
    """
    state = _remembered(optimizers.build(model, config))
    tables, rest = optimizers.split(model)
    names = table_names(model)
    measured = []
    for table in tables:
        name, (rows, width), whole = names[table], table.shape, table.nbytes
        gradient = tried.gradients[name] * config.gradient_accumulation_steps if config.sparse_embeddings else whole
        measured.append(TableMemory(name, rows, width, whole, state[table], gradient))
    dense = num_bytes(rest) + num_bytes(model.buffers())
    return ModelMemory(
        tables=tuple(sorted(measured, key=lambda table: -table.weights)),
        dense=dense,
        dense_state=sum(state[parameter] for parameter in rest),
        dense_gradient=num_bytes(rest),
        average=0 if config.ema_decay is None else dense + (0 if config.sparse_embeddings else num_bytes(tables)),
    )


def memory_items(
    sizes: ModelMemory, tried: MemoryProbe, rows: DataMemory, config: TrainConfig, where: Hardware
) -> list[MemoryItem]:
    """Return the items of memory of a training.

    Args:
        sizes: Of the model.
        tried: Of one part of a rank's batch.
        rows: Of the data.
        config: How to train.
        where: The hardware.
    """
    tables: Kind = "device" if where.on_gpu and where.placement != "host" else "host"
    rest: Kind = "device" if where.on_gpu else "host"
    parts = where.processes if where.placement == "sharded" else 1
    sums = {field: sum(getattr(table, field) for table in sizes.tables) for field in ("weights", "state", "gradient")}
    found = [
        MemoryItem("embedding tables", tables, sums["weights"] // parts),
        MemoryItem("their optimizer state", tables, sums["state"] // parts),
        MemoryItem(
            "their gradients",
            tables,
            sums["gradient"],
            "the rows of a batch" if config.sparse_embeddings else "whole tables",
        ),
        MemoryItem("dense parameters", rest, sizes.dense),
        MemoryItem("their optimizer state and gradients", rest, sizes.dense_state + sizes.dense_gradient),
        MemoryItem("moving average", rest, sizes.average),
        MemoryItem("activations of a batch", rest, tried.activations, f"{tried.rows:,} rows at a time"),
        MemoryItem("joined tables", rest, rows.joined),
        MemoryItem("batches that are ready", rest, tried.batch * config.gradient_accumulation_steps * _READY),
    ]
    left = where.free - total(found, "device")
    found += [
        _rows_of(split, size, config.memory_mib, left) for split, size in (("train", rows.train), ("valid", rows.valid))
    ]
    every = [
        replace(item, num_bytes=item.num_bytes * (where.processes if item.place == "host" else 1)) for item in found
    ]
    return [item for item in every if item.num_bytes]


def _rows_of(split: str, size: int, memory: int, left: int) -> MemoryItem:
    """Decide as the loader does: rows within its budget are resident, on the GPU if they take at most half of its free memory."""
    if size > memory << 20:
        return MemoryItem(f"rows of {split}", "host", memory << 20, f"streamed within train.memory_mib={memory}")
    return MemoryItem(f"rows of {split}", "device" if size <= left // 2 else "host", size, "kept in memory")


def total(found: list[MemoryItem], place: Kind) -> int:
    """Return the sum of the items of a place."""
    return sum(item.num_bytes for item in found if item.place == place)


def _remembered(built: Iterable[Optimizer]) -> dict[Tensor, int]:
    """Return the size of the optimizer state of each parameter of a model on the meta device, by creating it."""
    found: dict[Tensor, int] = {}
    for optimizer in built:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if isinstance(optimizer, RowOptimizer):
                    found[parameter] = num_bytes(optimizer.remembered(parameter).values())
                else:
                    parameter.grad = torch.empty_like(parameter)
            group.update(fused=None, foreach=False)  # fused kernels refuse the meta device; they remember the same
        if not isinstance(optimizer, RowOptimizer):
            optimizer.step()
            found.update({parameter: num_bytes(state.values()) for parameter, state in optimizer.state.items()})
    return found
