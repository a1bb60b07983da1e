"""Model weights in a checkpoint file, under one prefix."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.models.model import Model
from recsys_cli.workspace import whole

PREFIX = "model."
"""Prefix of the model's tensor names in a checkpoint."""


def load_weights(model: Model, path: Path, *, mapped: bool = False) -> None:
    """Load the weights of a checkpoint into a model of the same config and schema, in place and on its device.

    With `mapped`, its tensors are replaced by memory-mapped ones on the host: rows are read at first use.

    Raises:
        MissingArtifactError: The file does not exist.
        DataError: The file is no checkpoint, or belongs to another model.
    """
    tensors = read_weights(path)
    try:
        missing, unknown = model.load_state_dict(tensors, strict=False, assign=mapped)
        wrong = [*(f"{name} is missing" for name in missing), *(f"{name} is unknown" for name in unknown)]
    except RuntimeError as error:  # shapes
        own = {name: tensor.shape for name, tensor in model.state_dict().items()}
        other = (name for name, tensor in tensors.items() if own.get(name, tensor.shape) != tensor.shape)
        wrong = [f"{name} is of shape {tuple(tensors[name].shape)}, not {tuple(own[name])}" for name in other]
        wrong = wrong or [str(error)]
    if wrong:
        raise DataError(f"{path}: not the weights of this model: {wrong[0]}", hint="recsys train --force")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the model's tensors of a checkpoint, by parameter name; errors as of `load_weights`."""
    if not path.is_file():
        raise MissingArtifactError(f"no checkpoint {path}", hint="recsys train")
    with whole(path, hint="recsys train --force"), safe_open(path, framework="pt") as file:
        return {key.removeprefix(PREFIX): file.get_tensor(key) for key in file.keys() if key.startswith(PREFIX)}  # noqa: SIM118


def checksum_of_tensors(tensors: Mapping[str, Tensor], start: int = 0) -> str:
    """Return the CRC-32 of tensors in host memory, with their names, types and shapes, as eight hexadecimal digits.

    `start` is an initial CRC-32, to include other data.
    """
    crc = start
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"
