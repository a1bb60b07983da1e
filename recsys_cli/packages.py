"""Installed packages: releases from package metadata, so nothing is imported."""

from __future__ import annotations

from importlib import metadata


def installed(package: str) -> str | None:
    """Return the installed release of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
