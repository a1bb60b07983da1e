"""The file of a download that is not finished: what is on disk, of which version, and how to go on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path


class PartFile:
    """A partial download beside its final name, with a note of what the server called that version of the file."""

    def __init__(self, to: Path) -> None:
        self.name = to.name
        self.path = to.with_name(f"{to.name}.part")
        self._to = to
        self._note = to.with_name(f"{to.name}.part.json")

    def size(self) -> int:
        """Count the bytes on disk."""
        return self.path.stat().st_size if self.path.exists() else 0

    def range_headers(self, url: str, *, by_digest: bool) -> dict[str, str]:
        """Ask for the rest only, where what is on disk is known to be the beginning of the same file.

        The server's own validator (ETag, Last-Modified) tells; on another server it means nothing, and there only a
        digest, checked at the end, makes it safe to go on.
        """
        note = self._read_note()
        if not self.size():
            return {}
        wanted = {"Range": f"bytes={self.size()}-"}
        if note.get("url") == url and note.get("validator"):
            return {**wanted, "If-Range": note["validator"]}
        return wanted if by_digest and note else {}

    def restart(self, url: str, headers: Mapping[str, str]) -> None:
        """Empty the part file and note which version of the file it will hold."""
        etag = headers.get("ETag", "")
        # RFC 9110: a weak validator does not promise the same bytes and may not be used in If-Range.
        validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")
        self.path.write_bytes(b"")
        self._note.write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")

    def continues(self, headers: Mapping[str, str]) -> bool:
        """Whether a 206 answer begins where the part file ends."""
        match = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
        return match is not None and int(match.group(1)) == self.size()

    def is_whole(self, headers: Mapping[str, str]) -> bool:
        """Whether a 416 answer says that the part file is all there is."""
        return headers.get("Content-Range", "") == f"bytes */{self.size()}" and self.size() > 0

    def finish(self) -> None:
        """Give the file its name."""
        Path(self.path).replace(self._to)
        self._note.unlink(missing_ok=True)

    def discard(self) -> None:
        """Forget what is on disk."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _read_note(self) -> dict[str, str]:
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}
