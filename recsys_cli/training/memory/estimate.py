"""Memory estimate of training: parameters and optimizer state (exact), a scaled memory probe, rows of the data."""

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
"""Batches of a loader in memory at a time: the current one and the prefetched ones."""


@dataclass(frozen=True)
class TableMemory:
    """Memory of one embedding table.

    Attributes:
        name: Path of the module in the model.
        rows: Number of rows.
        width: Elements per row.
        weights: Bytes of the table.
        state: Bytes of the optimizer state.
        gradient: Bytes of the gradient: the whole table, or with `train.sparse_embeddings` the rows of a batch.
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
        tables: Embedding tables in descending order of size.
        dense: Dense parameters and buffers.
        dense_state: Optimizer state of dense parameters.
        dense_gradient: Gradients of dense parameters.
        average: Moving average of the weights; 0 without one.
    """

    tables: tuple[TableMemory, ...]
    dense: int
    dense_state: int
    dense_gradient: int
    average: int


@dataclass(frozen=True)
class DataMemory:
    """Memory of the data, in bytes.

    Attributes:
        train: Rows of train.
        valid: Rows of valid.
        joined: Dimension tables of lookup joins.
    """

    train: int
    valid: int
    joined: int


@dataclass(frozen=True)
class Hardware:
    """Hardware of a training run.

    Attributes:
        on_gpu: Whether the model is on a GPU.
        placement: Placement of the embedding tables.
        processes: Ranks on this machine.
        free: Free GPU memory in bytes.
    """

    on_gpu: bool = False
    placement: Placement = "device"
    processes: int = 1
    free: int = 0


@dataclass(frozen=True)
class MemoryItem:
    """One line of the memory estimate.

    Attributes:
        what: Name of the item.
        place: Host memory or GPU memory.
        num_bytes: Size in bytes: on the host the sum over processes, on a GPU per process.
        note: Remark.
    """

    what: str
    place: Kind
    num_bytes: int
    note: str = ""


def model_memory(model: Model, config: TrainConfig, probe: MemoryProbe) -> ModelMemory:
    """Return the memory of a model in training.

    Args:
        model: Full-size model on the meta device.
        config: `train` section of the config.
        probe: Memory probe of a step.
    """
    state = _optimizer_state_bytes(optimizers.build(model, config))
    tables, rest = optimizers.split(model)
    names = table_names(model)
    measured = []
    for table in tables:
        name, (rows, width), whole = names[table], table.shape, table.nbytes
        gradient = probe.gradients[name] * config.gradient_accumulation_steps if config.sparse_embeddings else whole
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
    model: ModelMemory, probe: MemoryProbe, data: DataMemory, config: TrainConfig, hardware: Hardware
) -> list[MemoryItem]:
    """Return the memory items of a training run, without empty ones.

    Args:
        model: Memory of the model.
        probe: Memory of a step over one part of a rank's batch.
        data: Memory of the data.
        config: `train` section of the config.
        hardware: Hardware of the run.
    """
    tables: Kind = "device" if hardware.on_gpu and hardware.placement != "host" else "host"
    rest: Kind = "device" if hardware.on_gpu else "host"
    parts = hardware.processes if hardware.placement == "sharded" else 1
    sums = {field: sum(getattr(table, field) for table in model.tables) for field in ("weights", "state", "gradient")}
    items = [
        MemoryItem("embedding tables", tables, sums["weights"] // parts),
        MemoryItem("their optimizer state", tables, sums["state"] // parts),
        MemoryItem(
            "their gradients",
            tables,
            sums["gradient"],
            "the rows of a batch" if config.sparse_embeddings else "whole tables",
        ),
        MemoryItem("dense parameters", rest, model.dense),
        MemoryItem("their optimizer state and gradients", rest, model.dense_state + model.dense_gradient),
        MemoryItem("moving average", rest, model.average),
        MemoryItem("activations of a batch", rest, probe.activations, f"{probe.rows:,} rows at a time"),
        MemoryItem("dimension tables", rest, data.joined),
        MemoryItem("prefetched batches", rest, probe.batch * config.gradient_accumulation_steps * _READY),
    ]
    left = hardware.free - total(items, "device")
    items += [
        _rows_of(split, size, config.memory_mib, left) for split, size in (("train", data.train), ("valid", data.valid))
    ]
    processes = {"host": hardware.processes, "device": 1}
    return [replace(item, num_bytes=item.num_bytes * processes[item.place]) for item in items if item.num_bytes]


def _rows_of(split: str, size: int, memory: int, left: int) -> MemoryItem:
    """Return the item of a split's rows, by the rule of the loader.

    Rows within the loader's budget are resident, on the GPU if they take at most half of its free memory.
    """
    if size > memory << 20:
        return MemoryItem(f"rows of {split}", "host", memory << 20, f"streamed within train.memory_mib={memory}")
    return MemoryItem(f"rows of {split}", "device" if size <= left // 2 else "host", size, "kept in memory")


def total(items: Iterable[MemoryItem], place: Kind) -> int:
    """Return the bytes of all items in host or GPU memory."""
    return sum(item.num_bytes for item in items if item.place == place)


def _optimizer_state_bytes(optimizers: Iterable[Optimizer]) -> dict[Tensor, int]:
    """Return the bytes of the optimizer state of each parameter; creates the state on the meta device."""
    sizes: dict[Tensor, int] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if isinstance(optimizer, RowOptimizer):
                    sizes[parameter] = num_bytes(optimizer.initial_state(parameter).values())
                else:
                    parameter.grad = torch.empty_like(parameter)
            group.update(fused=None, foreach=False)  # fused kernels, of the same state, reject the meta device
        if not isinstance(optimizer, RowOptimizer):
            optimizer.step()
            sizes.update({parameter: num_bytes(state.values()) for parameter, state in optimizer.state.items()})
    return sizes
