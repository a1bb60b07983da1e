"""Result of an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Written:
    """An exported folder.

    Attributes:
        folder: The folder.
        differences: Largest difference to the model's outputs by batch size.
        num_bytes: Size of all files.
        encoded: Inputs that stay encoded, with the reason.
    """

    folder: Path
    differences: Mapping[int, float]
    num_bytes: int
    encoded: Mapping[str, str]


def total_bytes(folder: Path) -> int:
    """Return the size of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
