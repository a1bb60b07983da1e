"""Checkpoints: one safetensors file with the full training state."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from recsys_cli.errors import TrainingError
from recsys_cli.models.embedding import ShardedEmbeddings
from recsys_cli.models.weights import PREFIX, checksum_of_tensors
from recsys_cli.workspace import replacing, whole

_OPTIMIZER = "optimizer."
_META, _CHECKSUM = "recsys", "checksum"
"""Keys of the file header."""


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint file: tensors by name, and plain values, stored as JSON in the file header."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write atomically."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        meta = json.dumps(self.meta)
        with replacing(path) as partial:
            save_file(tensors, partial, metadata={_META: meta, _CHECKSUM: _checksum(tensors, meta)})

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read a file of `save`; a `DataError` for other files and a wrong checksum."""
        with whole(path, hint="recsys train --force"), safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            header = file.metadata() or {}
            if header.get(_CHECKSUM) != _checksum(tensors, header[_META]):
                raise ValueError("its content is not what was written")
            return cls(tensors, json.loads(header[_META]))


def _checksum(tensors: Mapping[str, Tensor], meta: str) -> str:
    # An unfinished run has no manifest with a checksum of the file.
    return checksum_of_tensors(tensors, zlib.crc32(meta.encode()))


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's tensors by name in a checkpoint."""
    return {PREFIX + name: tensor for name, tensor in model.state_dict().items()}


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with a NaN or infinite value, or None."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            low, high = torch.aminmax(tensor.detach())  # propagates NaN, without the copy of torch.isfinite
            if not (torch.isfinite(low) and torch.isfinite(high)):
                return name
    return None


def optimizer_state(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Return the optimizers' tensors by parameter and key."""
    sharded = {
        f"{_OPTIMIZER}{path}{key}": value
        for path, module in sharded_tables(model)
        for key, value in module.optimizer_state().items()
    }
    return sharded | {
        f"{_OPTIMIZER}{name}:{key}": value
        for name, parameter in model.named_parameters()
        for optimizer in optimizers
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def sharded_tables(model: nn.Module) -> list[tuple[str, ShardedEmbeddings]]:
    """Return the sharded tables, which update themselves, and the prefixes of their parameter names."""
    tables = [(path, module) for path, module in model.named_modules() if isinstance(module, ShardedEmbeddings)]
    return [(f"{path}." if path else "", module) for path, module in tables]


def restore(checkpoint: Checkpoint, model: nn.Module, optimizers: list[Optimizer]) -> None:
    """Load the state of the model and its optimizers; a `TrainingError` if it is of another model or other optimizers."""
    tensors = checkpoint.tensors
    try:
        model.load_state_dict({k.removeprefix(PREFIX): v for k, v in tensors.items() if k.startswith(PREFIX)})
        owners = {
            name: (optimizer, parameter)
            for name, parameter in model.named_parameters()
            for optimizer in optimizers
            for group in optimizer.param_groups
            if any(parameter is one for one in group["params"])
        }
        state = {key.removeprefix(_OPTIMIZER): tensor for key, tensor in tensors.items() if key.startswith(_OPTIMIZER)}
        for path, module in sharded_tables(model):
            keys = [key for key in state if key.startswith(path)]
            module.load_optimizer_state({key.removeprefix(path): state.pop(key) for key in keys})
        for key, tensor in state.items():
            name, _, field = key.rpartition(":")
            optimizer, parameter = owners[name]
            optimizer.state[parameter][field] = tensor.to(parameter.device, copy=True)  # out of the memory-mapped file
    except (RuntimeError, KeyError) as error:
        raise TrainingError(f"the checkpoint does not fit the model: {error}", hint="recsys train --force") from error
