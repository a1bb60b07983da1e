"""Published protocols: a config each, with data, split, evaluation and the published figures."""

from __future__ import annotations

from pathlib import Path

from recsys_cli import registry


def path_of(name: str) -> Path:
    """Return the config of a protocol.

    Raises:
        ConfigError: The name is unknown.
    """
    return Path(__file__).parent / registry.lookup(registry.PROTOCOLS, name, what="protocol")
