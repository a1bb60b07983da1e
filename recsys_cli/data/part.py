"""Partial downloads: bytes on disk, version of the file, and range requests to resume."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path


class PartFile:
    """A partial download next to its final path, with a note of the server's version of the file."""

    def __init__(self, to: Path) -> None:
        self.name = to.name
        self.path = to.with_name(f"{to.name}.part")
        self._to = to
        self._note = to.with_name(f"{to.name}.part.json")

    def size(self) -> int:
        """Return the bytes on disk."""
        return self.path.stat().st_size if self.path.exists() else 0

    def range_headers(self, url: str, *, by_digest: bool) -> dict[str, str]:
        """Return request headers for the rest of the file, if the bytes on disk can be resumed.

        The server's validator (ETag, Last-Modified) must match. On another server only the final digest check makes
        resuming safe.
        """
        note = self._read_note()
        if not self.size():
            return {}
        rest = {"Range": f"bytes={self.size()}-"}
        if note.get("url") == url and note.get("validator"):
            return {**rest, "If-Range": note["validator"]}
        return rest if by_digest and note else {}

    def restart(self, url: str, headers: Mapping[str, str]) -> None:
        """Empty the part file and note the version of the new content."""
        etag = headers.get("ETag", "")
        # RFC 9110: weak validators do not guarantee equal bytes and are not allowed in If-Range.
        validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")
        self.path.write_bytes(b"")
        self._note.write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")

    def continues(self, headers: Mapping[str, str]) -> bool:
        """Whether a 206 response starts at the end of the part file."""
        match = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
        return match is not None and int(match.group(1)) == self.size()

    def is_whole(self, headers: Mapping[str, str]) -> bool:
        """Whether a 416 response shows that the part file is complete."""
        return headers.get("Content-Range", "") == f"bytes */{self.size()}" and self.size() > 0

    def finish(self) -> None:
        """Rename the part file to its final path."""
        Path(self.path).replace(self._to)
        self._note.unlink(missing_ok=True)

    def discard(self) -> None:
        """Delete the part file and its note."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _read_note(self) -> dict[str, str]:
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}
