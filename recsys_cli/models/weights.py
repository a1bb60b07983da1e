"""Weights in a checkpoint file: every checkpoint, `best` or `last`, keeps the model's tensors under one prefix."""

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
"""What the names of the model's tensors begin with in a checkpoint."""


def load_weights(model: Model, path: Path) -> None:
    """Fill a model, in place and on its device, with the weights of a checkpoint.

    Args:
        model: Built from the same config and schema as the one that was saved.
        path: A `best` or `last` checkpoint.

    Raises:
        MissingArtifactError: There is no such file.
        DataError: It is not a checkpoint, or of another model.
    """
    tensors = read_weights(path)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise _not_weights(path, error) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the model's tensors in a checkpoint, by the model's names.

    Raises:
        MissingArtifactError: There is no such file.
        DataError: It is not a checkpoint.
    """
    if not path.is_file():
        raise MissingArtifactError(f"no checkpoint {path}", hint="recsys train")
    with whole(path, hint="recsys train --force"), safe_open(path, framework="pt") as file:
        return {key.removeprefix(PREFIX): file.get_tensor(key) for key in file.keys() if key.startswith(PREFIX)}  # noqa: SIM118


def _not_weights(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: not the weights of this model: {error}", hint="recsys train --force")


def checksum_of_tensors(tensors: Mapping[str, Tensor], start: int = 0) -> str:
    """Compute the CRC-32 of tensors in host memory, with their names, types and shapes, as eight hexadecimal digits.

    Args:
        tensors: By name.
        start: The CRC-32 of what stands beside them.
    """
    crc = start
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"
