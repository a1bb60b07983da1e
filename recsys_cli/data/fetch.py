"""How a file comes over HTTP in one piece: resumed, retried, verified and renamed, whatever the server does."""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from filelock import FileLock, Timeout

from recsys_cli.data.digest import Digest, file_digest, hint_for, impostor, refuse_impostor
from recsys_cli.data.part import PartFile
from recsys_cli.errors import DataError
from recsys_cli.events import Emit, Message, Progress

ELSEWHERE = "take another server with --mirror URL, or download the file by hand and pass --from-file PATH"


@dataclass(frozen=True)
class Patience:
    """How long to bear with a server.

    Attributes:
        attempts: Failures in a row, without a byte gained, after which to give up.
        wait: Seconds before the second attempt; doubled for each one after it.
        longest: The most seconds to wait at once, also where the server's Retry-After asks for more.
        timeout: Seconds without an answer or a byte after which an attempt has failed.
        sleep: How to wait.
    """

    attempts: int = 5
    wait: float = 1.0
    longest: float = 60.0
    timeout: float = 30.0
    sleep: Callable[[float], None] = time.sleep


class _Interrupted(Exception):  # noqa: N818 - not an error of the user's, and never leaves this file
    """An attempt failed in a way that another attempt may mend."""

    def __init__(self, reason: str, *, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


def download(url: str, to: Path, *, digest: Digest | None, emit: Emit, patience: Patience | None = None) -> str:
    """Get the file at `url` whole and right, or not at all.

    Bytes go to `<to>.part`, which a later call resumes; only a verified file gets the name `to`. Two downloads of one
    file at once: the second waits and then finds it done.

    Args:
        url: An http or https address.
        to: Where the file shall be; the folder is made, and holds the part file and the lock.
        digest: What the file has to be; None where the publisher changes it from time to time.
        emit: Told about progress, waiting and retries.
        patience: How long to bear with the server.

    Returns:
        The digest found (md5 where none was given).

    Raises:
        DataError: The server does not have the file, or what came is not the file.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    with _alone(to, emit) as waited:
        if to.exists() and (digest.matches(to) if digest else waited):
            emit(Message(f"{to.name} is already here"))
        else:
            part = PartFile(to)
            try:
                _receive(url, part, by_digest=digest is not None, emit=emit, patience=patience or Patience())
                _verify(part, digest, url)
                part.finish()
            except OSError as error:
                raise DataError(f"cannot write {part.path}: {error.strerror}", hint="is the disk full?") from error
        return digest.value if digest else file_digest(to)


@contextmanager
def _alone(to: Path, emit: Emit) -> Iterator[bool]:
    """Keep other downloads of the same file out; yields whether we had to wait for one."""
    lock = FileLock(f"{to}.lock")
    try:
        lock.acquire(timeout=0)
        waited = False
    except Timeout:
        emit(Message(f"another download of {to.name} is running; waiting for it"))
        lock.acquire()
        waited = True
    try:
        yield waited
    finally:
        lock.release()


def _verify(part: PartFile, digest: Digest | None, url: str) -> None:
    """Delete the part file and stop if it is not what was asked for."""
    try:
        refuse_impostor(part.path, source=url)
        wrong = digest.mismatch(part.path) if digest else None
        if wrong:
            raise DataError(f"{url} is not the file that it should be: {wrong}", hint=f"run again, or {ELSEWHERE}")
    except DataError:
        part.discard()
        raise


def _receive(url: str, part: PartFile, *, by_digest: bool, emit: Emit, patience: Patience) -> None:
    """Fill the part file, in as many attempts as it takes."""
    failures = 0
    with httpx.Client(follow_redirects=True, timeout=patience.timeout) as client:
        while True:
            before = part.size()
            try:
                _attempt(client, url, part, by_digest=by_digest, emit=emit)
                return
            except _Interrupted as interruption:
                failures = 1 if part.size() > before else failures + 1
                if failures >= patience.attempts:
                    raise DataError(
                        f"cannot download {url}: {interruption}", hint=f"run again, or {ELSEWHERE}"
                    ) from None
                pause = interruption.pause if interruption.pause is not None else patience.wait * 2 ** (failures - 1)
                pause = min(pause, patience.longest)
                emit(Message(f"{part.name}: {interruption}; trying again in {pause:.0f} s", level="warning"))
                patience.sleep(pause)


def _attempt(client: httpx.Client, url: str, part: PartFile, *, by_digest: bool, emit: Emit) -> None:
    # Compressed transfer would make offsets and lengths mean something else than bytes of the file.
    headers = {"Accept-Encoding": "identity", **part.range_headers(url, by_digest=by_digest)}
    try:
        with client.stream("GET", url, headers=headers) as response:
            _save(response, url, part, emit)
    except httpx.RequestError as error:
        raise _translated(error, url) from error


def _save(response: httpx.Response, url: str, part: PartFile, emit: Emit) -> None:
    if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
        if part.is_whole(response.headers):
            emit(_progress(part, part.size(), part.size()))
            return
        part.discard()
        raise _Interrupted("the part on disk does not fit the server's file; starting again", pause=0)
    _refuse_status(response, url)
    resumed = response.status_code == httpx.codes.PARTIAL_CONTENT
    offset = part.size() if resumed else 0
    total = _total(response, offset)
    if resumed and not part.continues(response.headers):
        part.discard()
        raise _Interrupted("the server sent another range than was asked for; starting again", pause=0)
    _refuse_full_disk(part, total, offset)
    chunks = response.iter_raw()
    first = next(chunks, b"")
    if not resumed:
        what = impostor(first)
        if what:
            raise DataError(f"{url} answers with {what}, not with the file", hint=hint_for(what))
        if part.size():
            emit(Message(f"{part.name}: the server does not resume this file; starting from its beginning"))
        part.restart(url, response.headers)
    done = _write(part, first, chunks, report=lambda done: emit(_progress(part, done, total)))
    if total is not None and done < total:
        raise _Interrupted(f"the connection ended after {done:,} of {total:,} bytes")
    if total is None:
        emit(_progress(part, done, done))


def _refuse_full_disk(part: PartFile, total: int | None, offset: int) -> None:
    """Stop before the first byte where the disk cannot hold what the server announces."""
    free = shutil.disk_usage(part.path.parent).free
    if total is not None and total - offset > free:
        raise DataError(
            f"{part.name} has {total:,} bytes, and the disk of {part.path.parent} has {free:,} left",
            hint="make room there, or choose another disk with --workspace",
        )


def _write(part: PartFile, first: bytes, chunks: Iterator[bytes], *, report: Callable[[int], None]) -> int:
    """Append the chunks, each on disk before the next is asked for, so that a dropped connection loses none."""
    with part.path.open("ab") as file:
        done = file.tell()
        chunk: bytes | None = first
        while chunk is not None:
            file.write(chunk)
            done += len(chunk)
            report(done)
            chunk = next(chunks, None)
    return done


def _progress(part: PartFile, done: int, total: int | None) -> Progress:
    return Progress(task=f"download {part.name}", done=done, total=total, unit="bytes")


def _total(response: httpx.Response, offset: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return offset + int(length) if length.isdigit() else None


def _refuse_status(response: httpx.Response, url: str) -> None:
    status = response.status_code
    if status in {httpx.codes.OK, httpx.codes.PARTIAL_CONTENT}:
        return
    said = f"the server answers {status} {response.reason_phrase}".rstrip()
    if status >= 500 or status in {httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS}:
        seconds = response.headers.get("Retry-After", "")
        raise _Interrupted(said, pause=float(seconds) if seconds.isdigit() else None)
    raise DataError(f"cannot download {url}: {said}", hint=ELSEWHERE)


def _translated(error: httpx.RequestError, url: str) -> Exception:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return DataError(
                f"cannot download {url}: the server's certificate is not valid ({cause.verify_message})",
                hint=f"{ELSEWHERE}; the file's digest is checked, so it does not matter which way it comes",
            )
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.UnsupportedProtocol | httpx.TooManyRedirects):
        return DataError(f"cannot download {url}: {error}", hint=ELSEWHERE)
    return _Interrupted(str(error) or type(error).__name__)
