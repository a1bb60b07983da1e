"""How large the tensors of training are going to be, before there is memory for them.

The model is built on torch's meta device, where a tensor has a shape and no memory: tables of any size take no time. So
parameters, their gradients and what the optimizers remember are exact. Activations are measured: one step is made with
rows of the data and a model whose tables have just the rows of that batch, and what its forward pass saves is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import Place
from recsys_cli.features.schema import FIRST, Schema
from recsys_cli.models.model import Model
from recsys_cli.training import optimizers
from recsys_cli.training.alone import known_of_batch
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.rows import RowOptimizer
from recsys_cli.training.step import Step


@dataclass(frozen=True)
class TableSize:
    """One embedding table, in bytes.

    Attributes:
        name: Path of its module in the model.
        rows: Its rows.
        width: Elements of a row.
        weights: The table itself.
        state: What the optimizer remembers of it.
        gradient: Its gradient: as large as the table, or with `train.sparse` the rows of the batch alone.
    """

    name: str
    rows: int
    width: int
    weights: int
    state: int
    gradient: int


@dataclass(frozen=True)
class Sizes:
    """What a model takes while it is trained, in bytes.

    Attributes:
        tables: The embedding tables, the largest first.
        dense: All other parameters, and buffers.
        dense_state: What the optimizer remembers of them.
        dense_gradient: Their gradients.
        average: The moving average of the weights, where there is one.
    """

    tables: tuple[TableSize, ...]
    dense: int
    dense_state: int
    dense_gradient: int
    average: int


@dataclass(frozen=True)
class Tried:
    """What one step over some rows was found to take, in bytes.

    Attributes:
        rows: How many rows they were.
        activations: What the forward pass saved for the backward pass, beside weights and the batch.
        gradients: By name of the table's module, what of its gradient belongs to the rows of the batch.
        batch: The batch itself.
    """

    rows: int
    activations: int
    gradients: dict[str, int]
    batch: int

    def scaled(self, rows: int) -> Tried:
        """Return the same for another number of rows: exact in what is of each row, too much in what rows share."""
        factor = rows / self.rows
        return Tried(
            rows=rows,
            activations=round(self.activations * factor),
            gradients={name: round(size * factor) for name, size in self.gradients.items()},
            batch=round(self.batch * factor),
        )


def measure(model: Model, config: TrainConfig, tried: Tried) -> Sizes:
    """Measure a model that is on the meta device.

    Args:
        model: With all its rows.
        config: How it is to be trained.
        tried: What a step of it takes.
    """
    state = _remembered(optimizers.build(model, config))
    tables, rest = optimizers.split(model)
    names = _names(model)
    measured = []
    for table in tables:
        name, (rows, width), whole = names[table], table.shape, table.nbytes
        gradient = tried.gradients[name] * config.accumulate if config.sparse else whole
        measured.append(TableSize(name, rows, width, whole, state[table], gradient))
    dense = _bytes(rest) + _bytes(model.buffers())
    return Sizes(
        tables=tuple(sorted(measured, key=lambda table: -table.weights)),
        dense=dense,
        dense_state=sum(state[parameter] for parameter in rest),
        dense_gradient=_bytes(rest),
        average=0 if config.ema is None else dense + (0 if config.sparse else _bytes(tables)),
    )


def attempt(model: Model, config: TrainConfig, batch: Batch, schema: Schema) -> Tried:
    """Make one step on this machine's CPU and count what it takes.

    Args:
        model: On the meta device; what is left of it is of no use.
        config: How it is to be trained: `sparse` as the model was built, and a precision that is not `auto`.
        batch: Rows of the data, on the CPU.
        schema: Names their columns.
    """
    few, rows = _renumbered(batch)
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.weight = nn.Parameter(torch.empty(rows, module.weight.shape[1], device="meta"))
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    model.set_context(known_of_batch(few, schema))
    step = Step(model.train(), config.model_copy(update={"accumulate": 1, "compile": False}), Ranks())
    known = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers(), *_tensors(few))}
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        step(few, Place(0, 1, 1, []))
    names = _names(model)
    gradients = {names[table]: _gradient_bytes(table.grad) for table in optimizers.split(model)[0]}
    return Tried(batch.num_rows, sum(saved.values()), gradients, _bytes(_tensors(batch)))


def _remembered(built: Iterable[Optimizer]) -> dict[Tensor, int]:
    """Return what the optimizers of a model on the meta device remember of each parameter, by letting them make it."""
    found: dict[Tensor, int] = {}
    for optimizer in built:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if isinstance(optimizer, RowOptimizer):
                    found[parameter] = _bytes(optimizer.remembered(parameter).values())
                else:
                    parameter.grad = torch.empty_like(parameter)
            group.update(fused=None, foreach=False)  # fused kernels refuse the meta device; they remember the same
        if not isinstance(optimizer, RowOptimizer):
            optimizer.step()
            found.update({parameter: _bytes(state.values()) for parameter, state in optimizer.state.items()})
    return found


def _renumbered(batch: Batch) -> tuple[Batch, int]:
    """Return the batch with ids that count the rows it uses of each table, and how many that are at most.

    Ids with a fixed meaning keep it: a model may look for padding.
    """
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


def _names(model: nn.Module) -> dict[Tensor, str]:
    return {parameter: name.removesuffix(".weight") for name, parameter in model.named_parameters()}


def _tensors(batch: Batch) -> list[Tensor]:
    found = [*batch.labels.values()]
    for feature in batch.features.values():
        parts = (feature.values, feature.offsets, feature.weights) if isinstance(feature, Ragged) else (feature,)
        found += [part for part in parts if part is not None]
    return [*found, *([] if batch.weight is None else [batch.weight])]


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _gradient_bytes(gradient: Tensor | None) -> int:
    if gradient is None:
        return 0
    return gradient._indices().nbytes + gradient._values().nbytes if gradient.is_sparse else gradient.nbytes
