"""Memory of training before its start: parameters, optimizer state and gradients (exact), and rows of the data."""

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
from recsys_cli.training.row_optimizers import RowOptimizer

Kind = Literal["host", "device"]


@dataclass(frozen=True)
class TableMemory:
    """Bytes of one embedding table; the gradient is 0 with `train.sparse_embeddings`, which keep the rows of a batch."""

    name: str
    rows: int
    width: int
    weights: int
    state: int
    gradient: int


@dataclass(frozen=True)
class ModelMemory:
    """Bytes of a model in training; tables in descending order of size, `dense` with buffers."""

    tables: tuple[TableMemory, ...]
    dense: int
    dense_state: int
    dense_gradient: int
    average: int


@dataclass(frozen=True)
class DataMemory:
    """Bytes of the rows of train and valid, and of dimension tables (`joined`)."""

    train: int
    valid: int
    joined: int


@dataclass(frozen=True)
class Hardware:
    """Hardware of a training run: placement of the tables, ranks on this machine, free GPU memory in bytes."""

    on_gpu: bool = False
    placement: Placement = "device"
    processes: int = 1
    free: int = 0


@dataclass(frozen=True)
class MemoryItem:
    """One line of the memory estimate; bytes on the host are a sum over processes, on a GPU per process."""

    what: str
    place: Kind
    num_bytes: int
    note: str = ""


def model_memory(model: Model, config: TrainConfig) -> ModelMemory:
    """Return the memory of a model on the meta device in training."""
    state = _optimizer_state_bytes(optimizers.build(model, config))
    names = {parameter: name.removesuffix(".weight") for name, parameter in model.named_parameters()}
    tables, rest = optimizers.split(model)
    dense = num_bytes(rest) + num_bytes(model.buffers())
    measured = []
    for table in sorted(tables, key=lambda table: -table.nbytes):
        rows, width = table.shape
        gradient = 0 if config.sparse_embeddings else table.nbytes
        measured.append(TableMemory(names[table], rows, width, table.nbytes, state[table], gradient))
    return ModelMemory(
        tables=tuple(measured),
        dense=dense,
        dense_state=sum(state[parameter] for parameter in rest),
        dense_gradient=num_bytes(rest),
        average=0 if config.ema_decay is None else dense + (0 if config.sparse_embeddings else num_bytes(tables)),
    )


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total bytes."""
    return sum(tensor.nbytes for tensor in tensors)


def memory_items(model: ModelMemory, data: DataMemory, config: TrainConfig, hardware: Hardware) -> list[MemoryItem]:
    """Return the memory items of a training run, without empty ones and without activations."""
    tables: Kind = "device" if hardware.on_gpu and hardware.placement != "host" else "host"
    rest: Kind = "device" if hardware.on_gpu else "host"
    parts = hardware.processes if hardware.placement == "sharded" else 1
    sums = {field: sum(getattr(table, field) for table in model.tables) for field in ("weights", "state", "gradient")}
    items = [
        MemoryItem("embedding tables", tables, sums["weights"] // parts),
        MemoryItem("their optimizer state", tables, sums["state"] // parts),
        MemoryItem("their gradients", tables, sums["gradient"], "whole tables"),
        MemoryItem("dense parameters", rest, model.dense),
        MemoryItem("their optimizer state and gradients", rest, model.dense_state + model.dense_gradient),
        MemoryItem("moving average", rest, model.average),
        MemoryItem("dimension tables", rest, data.joined),
    ]
    left = hardware.free - total(items, "device")
    items += [
        _rows_of(split, size, config.memory_mib, left) for split, size in (("train", data.train), ("valid", data.valid))
    ]
    processes = {"host": hardware.processes, "device": 1}
    return [replace(item, num_bytes=item.num_bytes * processes[item.place]) for item in items if item.num_bytes]


def _rows_of(split: str, size: int, memory: int, left: int) -> MemoryItem:
    """Return the item of a split's rows: within the budget resident, on the GPU if they take at most half of its free memory."""
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
