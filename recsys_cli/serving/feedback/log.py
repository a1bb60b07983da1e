"""The writer of one log file: group commit on a thread, and a torn tail cut on open."""

from __future__ import annotations

import fcntl
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from recsys_cli.errors import ConfigError, DataError, LockedError, RecsysError
from recsys_cli.serving.feedback.state import COMMIT, FeedbackState, committed, lines_of
from recsys_cli.workspace.files import flush

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


Fsync = Literal["always", "interval", "never"]
Done = Callable[[BaseException | None], None]
INTERVAL = 1.0
"""Seconds between two flushes of the policy `interval`."""


class FeedbackLog:
    """An append-only file with a single writer; a blank line after each commit.

    Appends that arrive during a commit share the next one: one write, and one fsync by the policy `always`. An event is
    acknowledged after its write (after its fsync by `always`), so that the death of the process loses nothing.

    Args:
        path: The file; it is created, or read and cut after its last complete line.
        fsync: Flush to disk before each acknowledgment, once per second, or by the operating system.
        state: Receives the events of the file.

    Attributes:
        num_damaged: Number of damaged lines, which are skipped.
        waiting: Appends before the next commit.

    Raises:
        LockedError: Another process writes the file.
        DataError: All of its lines are damaged.
    """

    def __init__(self, path: Path, *, fsync: Fsync, state: FeedbackState) -> None:
        self._path, self._fsync = path, fsync
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            lock(self._file, path)
            self._size, self.num_damaged = replay(path, state)
            os.ftruncate(self._file, self._size)
            if not is_committed(path):
                with suppress(OSError):  # a full disk; the next commit covers these lines
                    self._size += os.write(self._file, COMMIT)
            os.fsync(self._file)
            flush(path.parent)
        except BaseException:
            os.close(self._file)
            raise
        self.waiting: queue.SimpleQueue[tuple[bytes, Done] | None] = queue.SimpleQueue()
        self._failure: RecsysError | None = None
        self._flushed, self._dirty = time.monotonic(), False
        self._thread = threading.Thread(target=self._run, name="feedback", daemon=True)
        self._thread.start()

    def append(self, lines: bytes, done: Done) -> None:
        """Append lines; `done` is called on the writer's thread, with an error if they are not in the file."""
        self.waiting.put((lines, done))

    def close(self) -> None:
        """Write what waits, flush, and release the file."""
        self.waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            batch = self._batch()
            if appends := [one for one in batch if one is not None]:
                error = self._commit(b"".join(lines for lines, _ in appends))
                for _, done in appends:
                    done(error)
            if len(appends) < len(batch):
                break
        if self._fsync != "never" and self._failure is None:
            os.fsync(self._file)
        os.close(self._file)

    def _batch(self) -> list[tuple[bytes, Done] | None]:
        """Wait for appends; flush in the meantime by the policy `interval`."""
        batch: list[tuple[bytes, Done] | None] = []
        while not batch:
            try:
                wait = max(0.0, self._flushed + INTERVAL - time.monotonic()) if self._dirty else None
                batch.append(self.waiting.get(timeout=wait))
            except queue.Empty:
                self._flush()
        while not self.waiting.empty():
            batch.append(self.waiting.get())
        return batch

    def _commit(self, content: bytes) -> RecsysError | None:
        """Write, and flush by the policy; after an error the file ends where it ended before."""
        if self._failure is not None:
            return self._failure
        try:
            written = 0
            while written < len(content):
                written += os.write(self._file, content[written:])
            self._dirty = self._fsync == "interval"
            overdue = self._dirty and time.monotonic() >= self._flushed + INTERVAL
            if self._fsync == "always" or overdue:
                self._flush()
            if self._failure is None:
                self._size += len(content) + os.write(self._file, COMMIT)
        except OSError as error:
            return self._undone(error)
        return self._failure

    def _flush(self) -> None:
        """Flush to disk. The kernel drops pages after an error, so the file takes no more events then."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            self._failure = _failed(self._path, error)
        self._flushed, self._dirty = time.monotonic(), False

    def _undone(self, error: OSError) -> RecsysError:
        failure = _failed(self._path, error)
        try:
            os.ftruncate(self._file, self._size)
        except OSError:
            self._failure = failure
        return failure


def _failed(path: Path, error: OSError) -> RecsysError:
    return RecsysError(
        f"{path.name}: {error.strerror or error}", hint="free space on the file system, then send it again"
    )


class Tail:
    """A reader of all files of a feedback folder except one. A server makes the files of its workers before it starts them."""

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
