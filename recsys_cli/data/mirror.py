"""Addresses of downloads: the publisher's, or a mirror's."""

from __future__ import annotations

import os

from recsys_cli.errors import ConfigError

MIRROR_VARIABLE = "RECSYS_MIRROR"


def address(name: str, published: str, mirror: str | None) -> str:
    """Return the URL of a file at the mirror, if one is set, or else the published one.

    Args:
        name: Name of the file at mirrors.
        published: URL at the publisher; empty for files without a public one.
        mirror: Base URL of a mirror; None for the variable RECSYS_MIRROR.

    Raises:
        ConfigError: The mirror is not a web address.
    """
    base = mirror or os.environ.get(MIRROR_VARIABLE)
    if not base:
        return published
    if not base.startswith(("http://", "https://")):
        raise ConfigError(
            f"mirror {base!r} is not a web address",
            hint=f"set --mirror (or {MIRROR_VARIABLE}) to https://host/folder, the folder of {name}",
        )
    return f"{base.rstrip('/')}/{name}"
