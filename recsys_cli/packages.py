"""Releases of installed packages, from metadata without imports."""

from __future__ import annotations

from importlib import metadata


def installed(package: str) -> str | None:
    """Return the installed release of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
