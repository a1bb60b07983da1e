"""Memory of training before its start: parameters and optimizer state (exact), a scaled probe of one step, rows of the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from recsys_cli.batch import Batch, Feature, Ragged, picked
from recsys_cli.config import Placement, TrainConfig
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.features.schema import FIRST, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.training import optimizers
from recsys_cli.training.ranks import Ranks
from recsys_cli.training.row_optimizers import RowOptimizer
from recsys_cli.training.step import Step


def context_of_batch(batch: Batch, schema: Schema) -> TrainingContext:
    """Return a training context with the rows of a batch, on the CPU, as its interactions; sufficient for one step of any model.

    The features of an id are those of its first row; an id absent from the batch gets the features of row 0.
    """

    def interactions() -> Interactions:
        users, items = (_ids(batch, schema.only(role).name).int().numpy() for role in (Role.USER, Role.ITEM))
        return Interactions(
            users, items, batch.labels[schema.label.name].numpy(), times=torch.arange(len(users)).numpy()
        )

    def join(ids: Mapping[str, Tensor]) -> Mapping[str, Feature]:
        features: dict[str, Feature] = dict(ids)
        for key, key_ids in ids.items():
            rows = _first_rows(_ids(batch, key), key_ids)
            for column in schema.in_table(key):
                if column in schema.features:
                    features[column.name] = picked(batch.features[column.name], rows)
        return features

    return TrainingContext(interactions, join)


def _ids(batch: Batch, name: str) -> Tensor:
    ids = batch.features[name]
    assert isinstance(ids, Tensor)
    return ids.long()


def _first_rows(ids: Tensor, queries: Tensor) -> Tensor:
    """Return the first row of each query id, 0 for an absent id; shape of `queries`."""
    size = int(torch.cat([ids, queries.long()]).max()) + 1
    first = torch.full((size,), len(ids)).scatter_reduce_(0, ids, torch.arange(len(ids)), "amin")
    return first[queries.long()] % len(ids)


@dataclass(frozen=True)
class MemoryProbe:
    """Bytes of one training step.

    Attributes:
        activations: Tensors saved for the backward pass, without weights and the batch.
        gradients: Sparse gradients of tables, by module name.
    """

    rows: int
    activations: int
    gradients: dict[str, int]
    batch: int

    def scaled(self, rows: int) -> MemoryProbe:
        """Scale to another number of rows: exact for memory per row, too high for memory shared by rows."""
        factor = rows / self.rows
        return MemoryProbe(
            rows=rows,
            activations=round(self.activations * factor),
            gradients={name: round(size * factor) for name, size in self.gradients.items()},
            batch=round(self.batch * factor),
        )


def probe_step(model: Model, config: TrainConfig, batch: Batch, schema: Schema) -> MemoryProbe:
    """Run one step on the CPU and count its memory.

    The model, on the meta device, is not usable afterwards. The config has the model's `sparse_embeddings` and a
    precision other than `auto`.
    """
    dense_batch, rows = _renumbered(batch)
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.weight = nn.Parameter(torch.empty(rows, module.weight.shape[1], device="meta"))
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    model.set_context(context_of_batch(dense_batch, schema))
    step = Step(model.train(), config.model_copy(update={"gradient_accumulation_steps": 1, "compile": False}), Ranks())
    inputs = (*model.parameters(), *model.buffers(), *dense_batch.tensors())
    excluded = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in excluded:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        step(dense_batch, TrainingPosition(0, 1, 1, []))
    names = table_names(model)
    gradients = {names[table]: _gradient_bytes(table.grad) for table in optimizers.split(model)[0]}
    return MemoryProbe(batch.num_rows, sum(saved.values()), gradients, num_bytes(batch.tensors()))


def table_names(model: nn.Module) -> dict[Tensor, str]:
    """Return the module path of each weight."""
    return {parameter: name.removesuffix(".weight") for name, parameter in model.named_parameters()}


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total bytes."""
    return sum(tensor.nbytes for tensor in tensors)


def _renumbered(batch: Batch) -> tuple[Batch, int]:
    """Return the batch with consecutive ids, reserved ones unchanged, and the highest number of distinct ids of a column."""
    features: dict[str, Feature] = {}
    most = FIRST
    for name, feature in batch.features.items():
        ids = feature.values if isinstance(feature, Ragged) else feature
        features[name] = feature
        if not ids.is_floating_point():
            distinct, inverse = torch.unique(torch.cat([torch.arange(FIRST), ids.flatten()]), return_inverse=True)
            fewer = inverse[FIRST:].view(ids.shape).to(ids.dtype)
            features[name] = replace(feature, values=fewer) if isinstance(feature, Ragged) else fewer
            most = max(most, distinct.numel())
    return replace(batch, features=features), most


def _gradient_bytes(gradient: Tensor | None) -> int:
    if gradient is None:
        return 0
    return gradient._indices().nbytes + gradient._values().nbytes if gradient.is_sparse else gradient.nbytes


Kind = Literal["host", "device"]
_READY = 5
"""Batches of a loader in memory at a time: the current one and the prefetched ones."""


@dataclass(frozen=True)
class TableMemory:
    """Bytes of one embedding table; the gradient with `train.sparse_embeddings` is that of the rows of a batch."""

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


def model_memory(model: Model, config: TrainConfig, probe: MemoryProbe) -> ModelMemory:
    """Return the memory of a full-size model on the meta device in training."""
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
    """Return the memory items of a training run, without empty ones; the probe is of one part of a rank's batch."""
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
