"""Memory of training before its start: parameters, optimizer state and gradients (exact), and rows of the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
class MemoryItem:
    """One line of the memory estimate; bytes on the host are a sum over processes, on a GPU per process."""

    what: str
    place: Kind
    num_bytes: int
    note: str = ""


def memory_of(
    model: Model, config: TrainConfig, data: Mapping[str, int], *, placement: Placement, on_gpu: bool, free: int
) -> tuple[list[TableMemory], list[MemoryItem]]:
    """Return the tables of a model on the meta device, the largest first, and the memory items of its training.

    Items are without empty ones and without activations.
    """
    state = _optimizer_state_bytes(optimizers.build(model, config))
    names = {parameter: name.removesuffix(".weight") for name, parameter in model.named_parameters()}
    sparse, (parameters, rest) = config.sparse_embeddings, optimizers.split(model)
    tables = [
        TableMemory(
            names[table], table.shape[0], table.shape[1], table.nbytes, state[table], 0 if sparse else table.nbytes
        )
        for table in sorted(parameters, key=lambda table: -table.nbytes)
    ]
    dense, gradients = num_bytes(rest) + num_bytes(model.buffers()), num_bytes(rest)
    average = 0 if config.ema_decay is None else dense + (0 if sparse else num_bytes(parameters))
    on_tables: Kind = "device" if on_gpu and placement != "host" else "host"
    on_rest: Kind = "device" if on_gpu else "host"
    parts = config.devices if placement == "sharded" else 1
    items = [
        MemoryItem("embedding tables", on_tables, sum(table.weights for table in tables) // parts),
        MemoryItem("their optimizer state", on_tables, sum(table.state for table in tables) // parts),
        MemoryItem("their gradients", on_tables, sum(table.gradient for table in tables), "whole tables"),
        MemoryItem("dense parameters", on_rest, dense),
        MemoryItem("their optimizer state and gradients", on_rest, sum(state[one] for one in rest) + gradients),
        MemoryItem("moving average", on_rest, average),
        MemoryItem("dimension tables", on_rest, data["dimension tables"]),
    ]
    left = free - total(items, "device")
    items += [_rows_of(split, data[split], config.memory_mib, left) for split in ("train", "valid")]
    processes = {"host": config.devices, "device": 1}
    return tables, [replace(one, num_bytes=one.num_bytes * processes[one.place]) for one in items if one.num_bytes]


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total bytes."""
    return sum(tensor.nbytes for tensor in tensors)


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
