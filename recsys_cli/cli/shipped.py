"""The configs that come along: in ./configs, beside the package in a checkout, or where pip has put them."""

from __future__ import annotations

import sys
from pathlib import Path


def configs() -> list[Path]:
    """Find them; those of the working directory come instead of the others."""
    folder = next((place for place in _places() if place.is_dir()), None)
    return sorted(folder.rglob("*.yaml")) if folder else []


def resolve(given: str) -> Path:
    """Return the config that is meant: the file that is given, or the one that comes along under that name.

    So `configs/ml25m.yaml` can be typed in any directory, as the documentation does.
    """
    path = Path(given)
    if _exists(path) or path.parent != Path("configs"):
        return path
    return next((place / path.name for place in _places() if _exists(place / path.name)), path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # its name is too long for the file system; who reads it says so
        return False


def _places() -> tuple[Path, ...]:
    beside = Path(__file__).resolve().parents[2] / "configs"
    installed = Path(sys.prefix) / "share" / "recsys-cli" / "configs"
    return Path("configs"), beside, installed
