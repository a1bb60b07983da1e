"""Events of the other workers, read from their files as they grow."""

from __future__ import annotations

from pathlib import Path

from recsys_cli.serving.feedback.event import lines_of
from recsys_cli.serving.feedback.files import current_files
from recsys_cli.serving.feedback.state import FeedbackState

_BLOCK = 1 << 24


class Tail:
    """A reader of all files of a feedback folder except one. A server makes the files of its workers before it starts them.

    Args:
        folder: The folder.
        own: The file of this worker.
        state: Receives the events.
    """

    def __init__(self, folder: Path, *, own: Path, state: FeedbackState) -> None:
        self._state = state
        self._offsets = {path: 0 for path in current_files(folder) if path != own}

    def poll(self) -> int:
        """Apply the events since the last call, and return their number.

        Raises:
            OSError: A file cannot be read; the events of the others are applied.
        """
        number, problem = 0, None
        for path in self._offsets:
            try:
                number += self._read(path)
            except OSError as error:
                problem = error
        if problem is not None:
            raise problem
        return number

    def _read(self, path: Path) -> int:
        """Read complete lines; the last one may still be under way."""
        start = self._offsets[path]
        size = path.stat().st_size
        if size <= start:
            self._offsets[path] = size  # shorter after a failed write, which was not acknowledged
            return 0
        number = 0
        with path.open("rb") as file:
            file.seek(start)
            while block := file.read(_BLOCK):
                read = 0
                for end, event in lines_of(block):
                    read = end
                    if event is not None:
                        self._state.apply(event)
                        number += 1
                if not read:
                    break
                start += read
                file.seek(start)
        self._offsets[path] = start
        return number
