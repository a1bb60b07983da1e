"""Reading of workspace files, with errors that name the file and the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsys_cli.errors import DataError, MissingArtifactError, RecsysError
from recsys_cli.workspace.checksums import checksum_of_json
from recsys_cli.workspace.writing import CHECKSUM

MAX_JSON = 1 << 27
"""Maximum bytes of a JSON file: a manifest of a million files has fewer."""


def read_json(path: Path, *, hint: str, expected: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Read a JSON object of `writing.write_json`, with required keys and types; the checksum is optional.

    Raises:
        MissingArtifactError: The file is missing.
        DataError: The file is damaged.
    """
    with whole(path, hint=hint):
        if (size := path.stat().st_size) > MAX_JSON:
            raise ValueError(f"{size:,} bytes are above the limit of {MAX_JSON:,}")
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        checksum = value.pop(CHECKSUM, None)
        if checksum is not None and checksum != checksum_of_json(value):
            raise ValueError("its content does not match its checksum")
        for key, kind in (expected or {}).items():
            if not isinstance(value.get(key), kind):
                raise ValueError(f"{key!r} is {'of another type' if key in value else 'missing'}")
    return value


def read_text(path: Path, *, hint: str) -> str:
    """Read a text file."""
    with whole(path, hint=hint):
        return path.read_text(encoding="utf-8")


@contextmanager
def whole(path: Path, *, hint: str) -> Iterator[None]:
    """Convert errors of parsers of a file into errors with its name.

    Raises:
        MissingArtifactError: The file is missing.
        DataError: The file is damaged.
    """
    try:
        yield
    except RecsysError:
        raise
    except FileNotFoundError as error:
        raise MissingArtifactError(f"{path} is missing", hint=hint) from error
    except MemoryError:
        raise
    except Exception as error:  # error types differ between parsers
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{path} is damaged: {reason}", hint=hint) from error
