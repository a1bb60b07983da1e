"""Checksums: what shows that a file is still as it was written. CRC-32 runs at 2 GB/s a core and needs no package."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from recsys_cli.errors import DataError, MissingArtifactError

_BLOCK = 1 << 20

Checksums = dict[str, tuple[int, str]]
"""Size and CRC-32 of each file, by its path in the artifact's folder."""

_verified: dict[Path, tuple[int, int, str]] = {}
"""Size, time of change and checksum of the files that this process has verified: each is read once."""


def checksum_of(path: Path) -> str:
    """Compute the CRC-32 of a file in blocks, as eight hexadecimal digits."""
    crc = 0
    buffer = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
    return f"{crc:08x}"


def checksum_of_json(value: Any) -> str:
    """Compute the CRC-32 of a JSON value, whatever its layout in a file."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def checksums(folder: Path, files: Iterable[Path]) -> Checksums:
    """Return size and checksum of files, by their paths in a folder."""
    return {file.relative_to(folder).as_posix(): (file.stat().st_size, checksum_of(file)) for file in sorted(files)}


def verify(folder: Path, expected: Mapping[str, Any], *, hint: str) -> None:
    """Read files once and compare them with their checksums.

    Args:
        folder: Where they are.
        expected: What `checksums` returned when they were written.
        hint: How to make them again.

    Raises:
        MissingArtifactError: A file is not there.
        DataError: A file is not as it was written.
    """
    check_sizes(folder, expected, hint=hint)
    for name, (size, checksum) in expected.items():
        path = (folder / name).absolute()
        stamp = (size, path.stat().st_mtime_ns, checksum)
        if _verified.get(path) == stamp:
            continue
        if checksum_of(path) != checksum:
            raise DataError(f"{path} is damaged: its content is not what was written", hint=hint)
        _verified[path] = stamp


def check_sizes(folder: Path, expected: Mapping[str, Any], *, hint: str) -> None:
    """Compare the sizes of files with those that were written; no file is read.

    Raises:
        MissingArtifactError: A file is not there.
        DataError: A file has another size.
    """
    for name, (size, _) in expected.items():
        path = folder / name
        try:
            found = path.stat().st_size
        except OSError as error:
            raise MissingArtifactError(f"{path} is missing ({error.strerror})", hint=hint) from error
        if found != size:
            raise DataError(f"{path} is damaged: it has {found:,} bytes, and {size:,} were written", hint=hint)
