"""A checkpoint: one safetensors file with everything that resuming needs, tensors by name and the rest as JSON."""

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
"""Keys of the file's header."""


@dataclass(frozen=True)
class Checkpoint:
    """What is in a checkpoint file.

    Attributes:
        tensors: By name.
        meta: Plain values, kept as JSON in the file's header.
    """

    tensors: dict[str, Tensor]
    meta: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write to a temporary name beside `path` and rename: whoever is killed meanwhile leaves the old file."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        meta = json.dumps(self.meta)
        with replacing(path) as partial:
            save_file(tensors, partial, metadata={_META: meta, _CHECKSUM: _checksum(tensors, meta)})

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read what `save` wrote.

        Raises:
            DataError: The file is not a checkpoint, or not as it was written.
        """
        with whole(path, hint="recsys train --force"), safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            header = file.metadata() or {}
            if header.get(_CHECKSUM) != _checksum(tensors, header[_META]):
                raise ValueError("its content is not what was written")
            return cls(tensors, json.loads(header[_META]))


def _checksum(tensors: Mapping[str, Tensor], meta: str) -> str:
    """Compute the CRC-32 of all that a checkpoint holds: a run is resumed before a manifest has one of the file."""
    return checksum_of_tensors(tensors, zlib.crc32(meta.encode()))


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's tensors under their names in a checkpoint."""
    return {PREFIX + name: tensor for name, tensor in model.state_dict().items()}


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of a tensor that holds something else than finite numbers; None where all are sound."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            low, high = torch.aminmax(tensor.detach())  # NaN where there is one; and no copy is made, as isfinite would
            if not (torch.isfinite(low) and torch.isfinite(high)):
                return name
    return None


def optimizer_state(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Return the optimizers' tensors, by the name of the parameter that they belong to."""
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
    """Return the tables that update themselves, with what the names of their parameters begin with."""
    found = [(path, module) for path, module in model.named_modules() if isinstance(module, ShardedEmbeddings)]
    return [(f"{path}." if path else "", module) for path, module in found]


def restore(checkpoint: Checkpoint, model: nn.Module, optimizers: list[Optimizer]) -> None:
    """Put the model and its optimizers back to where a checkpoint was written.

    Raises:
        TrainingError: The checkpoint is of another model, or of other optimizers.
    """
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
            here = [key for key in state if key.startswith(path)]
            module.load_optimizer_state({key.removeprefix(path): state.pop(key) for key in here})
        for key, tensor in state.items():
            name, _, field = key.rpartition(":")
            optimizer, parameter = owners[name]
            optimizer.state[parameter][field] = tensor.to(parameter.device, copy=True)  # off the file's pages
    except (RuntimeError, KeyError) as error:
        raise TrainingError(f"the checkpoint does not fit the model: {error}", hint="recsys train --force") from error
