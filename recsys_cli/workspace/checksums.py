"""Checksums of files against damage: CRC-32, at 2 GB/s per core without a dependency."""

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
"""Size, modification time and checksum of the files already verified by this process."""


def checksum_of(path: Path) -> str:
    """Compute the CRC-32 of a file, as eight hexadecimal digits."""
    crc = 0
    buffer = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
    return f"{crc:08x}"


def checksum_of_json(value: Any) -> str:
    """Compute the CRC-32 of a JSON value, independent of formatting."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def checksums(folder: Path, files: Iterable[Path]) -> Checksums:
    """Return size and checksum of files, by path relative to a folder."""
    return {file.relative_to(folder).as_posix(): (file.stat().st_size, checksum_of(file)) for file in sorted(files)}


def verify(folder: Path, expected: Mapping[str, Any], *, hint: str) -> None:
    """Verify the `checksums` of files, once per process and file.

    Raises:
        MissingArtifactError: A file is missing.
        DataError: A file is damaged.
    """
    check_sizes(folder, expected, hint=hint)
    for name, (size, checksum) in expected.items():
        path = (folder / name).absolute()
        stamp = (size, path.stat().st_mtime_ns, checksum)
        if _verified.get(path) == stamp:
            continue
        if checksum_of(path) != checksum:
            raise DataError(f"{path} is damaged: its content does not match its checksum", hint=hint)
        _verified[path] = stamp


def check_sizes(folder: Path, expected: Mapping[str, Any], *, hint: str) -> None:
    """Compare the sizes of files, all of them in the folder, with the expected ones."""
    for name, (size, _) in expected.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise DataError(f"{folder}: its manifest names {name}, which is not in the folder", hint=hint)
        try:
            actual = path.stat().st_size
        except OSError as error:
            raise MissingArtifactError(f"{path} is missing ({error.strerror})", hint=hint) from error
        if actual != size:
            raise DataError(f"{path} is damaged: it has {actual:,} bytes instead of {size:,}", hint=hint)
