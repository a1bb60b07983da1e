"""The one door for files of a workspace: what is missing, cut or altered becomes an error that names the file and the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsys_cli.errors import DataError, MissingArtifactError, RecsysError
from recsys_cli.workspace.checksums import checksum_of_json
from recsys_cli.workspace.writing import CHECKSUM


def read_json(path: Path, *, hint: str, expected: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Read a JSON object that `writing.write_json` wrote; one without a checksum is taken as it is.

    Args:
        path: The file.
        hint: How to make it again.
        expected: Keys that it must have, and the types of their values.

    Raises:
        MissingArtifactError: The file is not there.
        DataError: It is not what was written.
    """
    with whole(path, hint=hint):
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no JSON object")
        checksum = found.pop(CHECKSUM, None)
        if checksum is not None and checksum != checksum_of_json(found):
            raise ValueError("its content is not what was written")
        for key, kind in (expected or {}).items():
            if not isinstance(found.get(key), kind):
                raise ValueError(f"{key!r} is {'of another type' if key in found else 'missing'}")
    return found


def read_text(path: Path, *, hint: str) -> str:
    """Read a text file.

    Raises:
        MissingArtifactError: The file is not there.
        DataError: It is not text.
    """
    with whole(path, hint=hint):
        return path.read_text(encoding="utf-8")


@contextmanager
def whole(path: Path, *, hint: str) -> Iterator[None]:
    """Turn what a parser makes of a damaged file into an error that names it.

    Args:
        path: What is read in the block.
        hint: How to make it again.

    Raises:
        MissingArtifactError: The file is not there.
        DataError: It cannot be read.
    """
    try:
        yield
    except RecsysError:
        raise
    except FileNotFoundError as error:
        raise MissingArtifactError(f"{path} is missing", hint=hint) from error
    except MemoryError:
        raise
    except Exception as error:  # each parser has errors of its own
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{path} is damaged: {reason}", hint=hint) from error
