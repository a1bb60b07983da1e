"""The writer of one log file: group commit on a thread, and a torn tail cut on open."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from recsys_cli.errors import RecsysError
from recsys_cli.serving.feedback.event import COMMIT
from recsys_cli.serving.feedback.files import is_committed, lock, replay
from recsys_cli.serving.feedback.state import FeedbackState
from recsys_cli.workspace.files import flush

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
        num_cut: Number of bytes of the torn tail.

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
            self.num_cut = os.fstat(self._file).st_size - self._size
            os.ftruncate(self._file, self._size)
            if not is_committed(path):
                with suppress(OSError):  # a full disk; the next commit covers these lines
                    self._size += os.write(self._file, COMMIT)
            os.fsync(self._file)
            flush(path.parent)
        except BaseException:
            os.close(self._file)
            raise
        self._waiting: queue.SimpleQueue[tuple[bytes, Done] | None] = queue.SimpleQueue()
        self._failure: RecsysError | None = None
        self._flushed, self._dirty = time.monotonic(), False
        self._thread = threading.Thread(target=self._run, name="feedback", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        """Number of appends before the next commit."""
        return self._waiting.qsize()

    def append(self, lines: bytes, done: Done) -> None:
        """Append lines; `done` is called on the writer's thread, with an error if they are not in the file."""
        self._waiting.put((lines, done))

    def close(self) -> None:
        """Write what waits, flush, and release the file."""
        self._waiting.put(None)
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
                batch.append(self._waiting.get(timeout=wait))
            except queue.Empty:
                self._flush()
        while not self._waiting.empty():
            batch.append(self._waiting.get())
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
