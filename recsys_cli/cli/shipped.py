"""The included configs."""

from __future__ import annotations

import sys
from pathlib import Path


def configs() -> list[Path]:
    """Return the configs of ./configs, of a checkout, or of pip's data folder."""
    folder = next((folder for folder in _folders() if folder.is_dir()), None)
    return sorted(folder.rglob("*.yaml")) if folder else []


def resolve(given: str) -> Path:
    """Return the given file, or the included config of that name.

    `configs/ml25m.yaml` is valid in any directory, as in the documentation.
    """
    path = Path(given)
    if _exists(path) or path.parent != Path("configs"):
        return path
    return next((folder / path.name for folder in _folders() if _exists(folder / path.name)), path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long for the file system; reading reports it
        return False


def _folders() -> tuple[Path, ...]:
    checkout = Path(__file__).resolve().parents[2] / "configs"
    installed = Path(sys.prefix) / "share" / "recsys-cli" / "configs"
    return Path("configs"), checkout, installed
