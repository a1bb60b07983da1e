"""Limits of values from Python: a config has to be readable after it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recsys_cli.config import yaml12
from recsys_cli.config.document import Document, Key


def limit_problems(document: Document) -> list[str]:
    """Return one line for each value that YAML cannot hold: more than 64 bits, NUL, or too many levels."""
    return [
        f"{f'{location}: ' if (location := document.location(key)) else ''}{'.'.join(map(str, key))}: {problem}"
        for key, problem in _problems(document.values, ())
    ]


def _problems(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    if len(key) > yaml12.MAX_DEPTH:
        yield key[:1], f"has more than {yaml12.MAX_DEPTH} levels"
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _problems(inner, (*key, name))
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from _problems(inner, (*key, position))
    elif isinstance(value, int) and not yaml12.fits(value):
        yield key, "does not fit into 64 bits"
    elif isinstance(value, str) and not yaml12.is_text(value):
        yield key, f"has NUL or a lone surrogate: {value!r}"
