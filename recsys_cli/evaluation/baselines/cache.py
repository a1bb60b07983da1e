"""Cache of fitted baselines in the prepared data: EASE is fitted once, not in every evaluation."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from recsys_cli import __version__
from recsys_cli.config.load import model_config_type
from recsys_cli.errors import RecsysError
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import Model
from recsys_cli.models.weights import checksum_of_tensors
from recsys_cli.workspace import key_of
from recsys_cli.workspace.files import replacing

_CHECKSUM = "checksum"


class FittedCache:
    """Weights of fitted models in a folder; one without write access caches nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str, options: dict[str, Any], rows: Interactions) -> Path:
        """Return the file of a model: its key has package version, model format, options and training rows."""
        version = getattr(model_config_type(name), "format", 1)
        key = key_of("fitted", __version__, name, version, options, _checksum_of_rows(rows))
        return self.folder / f"{name}-{key[:16]}.safetensors"

    def load(self, model: Model, path: Path) -> bool:
        """Load a file into a model; return False if it is missing or damaged."""
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
                checksum = (file.metadata() or {}).get(_CHECKSUM)
        except (OSError, SafetensorError):
            return False
        if checksum != checksum_of_tensors(tensors):
            return False
        try:
            model.load_state_dict(tensors)
        except RuntimeError:  # tensors of another shape
            return False
        return True

    def save(self, model: Model, path: Path) -> None:
        """Write a model's weights atomically."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        with (
            suppress(OSError, RecsysError),  # the cache is optional: a full disk is reported when results are written
            replacing(path) as partial,
        ):
            save_file(tensors, partial, metadata={_CHECKSUM: checksum_of_tensors(tensors)})


def _checksum_of_rows(rows: Interactions) -> str:
    crc = 0
    for field in fields(rows):
        value = getattr(rows, field.name)
        data = np.ascontiguousarray(value) if isinstance(value, np.ndarray) else np.array([value], dtype=np.float64)
        crc = zlib.crc32(data.data, zlib.crc32(f"{field.name} {data.dtype} {len(data)}".encode(), crc))
    return f"{crc:08x}"
