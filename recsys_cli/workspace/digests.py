"""Cached checksums of the user's files outside the workspace."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from recsys_cli.errors import DataError, DiskFullError, MissingArtifactError
from recsys_cli.workspace.checksums import checksum_of
from recsys_cli.workspace.reading import read_json
from recsys_cli.workspace.writing import write_json


class FileChecksums:
    """Cache of checksums by path, size and modification time; a damaged cache file is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, file: Path) -> str:
        """Return the checksum of a file."""
        try:
            status, name = file.stat(), str(file.absolute())
            stamp = [status.st_size, status.st_mtime_ns]
            cached = self._load()
            entry = cached.get(name)
            if isinstance(entry, list) and entry[:2] == stamp:
                return str(entry[2])
            checksum = checksum_of(file)
        except OSError as error:
            raise DataError(f"cannot read {file}: {error.strerror}") from error
        with suppress(OSError, DiskFullError):  # a cache: a read-only or full workspace is read without it
            write_json(self._path, {**cached, name: [*stamp, checksum]})
        return checksum

    def _load(self) -> dict[str, object]:
        try:
            return read_json(self._path, hint="")
        except (MissingArtifactError, DataError):
            return {}
