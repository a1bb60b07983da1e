"""Events of the other workers, read from their files as they grow."""

from __future__ import annotations

from pathlib import Path

from recsys_cli.serving.feedback.event import committed, lines_of
from recsys_cli.serving.feedback.files import current_files
from recsys_cli.serving.feedback.state import FeedbackState


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
        """Read committed lines."""
        start = self._offsets[path]
        if path.stat().st_size <= start:
            return 0
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            content = committed(file.readall())
        events = [event for event in lines_of(content) if event is not None]
        for event in events:
            self._state.apply(event)
        self._offsets[path] += len(content)
        return len(events)
