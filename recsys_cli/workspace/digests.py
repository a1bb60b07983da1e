"""Checksums of the user's own files, which stay outside the workspace: each is read again only when its size or time changes."""

from __future__ import annotations

from pathlib import Path

from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.workspace.checksums import checksum_of
from recsys_cli.workspace.reading import read_json
from recsys_cli.workspace.writing import write_json


class FileChecksums:
    """What was computed before, by path, size and time of change.

    Args:
        path: File of the workspace to keep it in; a damaged one is begun anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, file: Path) -> str:
        """Return the checksum of a file.

        Raises:
            DataError: It cannot be read.
        """
        try:
            status, name = file.stat(), str(file.absolute())
            stamp = [status.st_size, status.st_mtime_ns]
            known = self._known()
            found = known.get(name)
            if isinstance(found, list) and found[:2] == stamp:
                return str(found[2])
            checksum = checksum_of(file)
        except OSError as error:
            raise DataError(f"{file}: cannot read it: {error.strerror}") from error
        write_json(self._path, {**known, name: [*stamp, checksum]})
        return checksum

    def _known(self) -> dict[str, object]:
        try:
            return read_json(self._path, hint="")
        except (MissingArtifactError, DataError):
            return {}
