"""Memory probe: one training step of a model with the rows of one batch as its tables.

Tensors saved by the forward pass are counted. Sizes of parameters and optimizer state come from torch's meta device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.features.schema import FIRST, Schema
from recsys_cli.models.model import Model
from recsys_cli.training import optimizers
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.memory.context import context_of_batch
from recsys_cli.training.step import Step


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
