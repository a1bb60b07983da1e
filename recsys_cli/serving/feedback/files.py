"""Files of a feedback folder: `GENERATION.compacted.jsonl`, and `GENERATION.worker-N.jsonl` of each writer.

A compaction starts a new generation; files of older generations count no more, and are removed.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recsys_cli.errors import ConfigError, DataError, LockedError
from recsys_cli.serving.feedback.event import COMMIT, committed, lines_of
from recsys_cli.serving.feedback.state import FeedbackState

_NAME = re.compile(r"(\d{6})\.(compacted|worker-\d+)\.jsonl")
_LOCK = "server.lock"


def generation(folder: Path) -> int:
    """Return the current generation: that of the latest compaction, or 0."""
    return max((number for number, part, _ in _files(folder) if part == "compacted"), default=0)


def current_files(folder: Path) -> list[Path]:
    """Return the files of the current generation; the compacted one first."""
    now = generation(folder)
    return [path for number, _, path in sorted(_files(folder)) if number == now]


def outdated_files(folder: Path) -> list[Path]:
    """Return the files of older generations."""
    now = generation(folder)
    return [path for number, _, path in _files(folder) if number < now]


def compacted_file(folder: Path, number: int) -> Path:
    """Return the path of a compacted log."""
    return folder / f"{number:06d}.compacted.jsonl"


def worker_file(folder: Path, worker: int) -> Path:
    """Return the path of a worker's log in the current generation."""
    return folder / f"{generation(folder):06d}.worker-{worker}.jsonl"


def _files(folder: Path) -> Iterator[tuple[int, str, Path]]:
    for path in folder.glob("*.jsonl"):
        if match := _NAME.fullmatch(path.name):
            yield int(match[1]), match[2], path


def replay(path: Path, state: FeedbackState, *, is_live: bool = False) -> tuple[int, int]:
    """Apply the events of a file; of one with a writer those it has committed.

    Returns:
        The offset after the last complete line, and the number of damaged lines.

    Raises:
        DataError: The file has lines, and all of them are damaged.
    """
    sound = damaged = 0
    content = committed(path.read_bytes()) if is_live else path.read_bytes()
    for event in lines_of(content):
        if event is None:
            damaged += 1
            continue
        state.apply(event)
        sound += 1
    if damaged and not sound:
        raise DataError(
            f"{path}: all of its {damaged} lines are damaged",
            hint="restore the file, such as its line ends; or move it away to go on without its events",
        )
    return content.rfind(b"\n") + 1, damaged


def is_committed(path: Path) -> bool:
    """Whether a file is empty or ends with a commit."""
    with path.open("rb") as file:
        file.seek(-min(file.seek(0, os.SEEK_END), 2), os.SEEK_END)
        return file.read() in {b"", b"\n" + COMMIT}


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock of a feedback folder; the end of the process releases it.

    Raises:
        LockedError: Another process holds it.
        ConfigError: The path is that of a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"{folder}: {error.strerror}", hint="name a folder with --feedback") from error
    opened = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock(opened, folder)
        yield
    finally:
        os.close(opened)


def lock(opened: int, path: Path) -> None:
    """Lock an open file.

    Raises:
        LockedError: Another process holds the lock.
    """
    with suppress(BlockingIOError):
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    raise LockedError(f"{path} is in use by a running server", hint="stop that server, or use another --feedback")
