"""HTTP download of a file: resumed, retried, verified and renamed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.events import Emit, Message, Progress
from recsys_cli.packages import httpx


@dataclass(frozen=True)
class Digest:
    """Expected digest of a file.

    Attributes:
        value: The digest in hexadecimal.
        algorithm: The hash function; `git` for the blob id of a repository (SHA-1 of a header and the file).
        size: Size of the file in bytes; None to skip the check.
    """

    value: str
    algorithm: Literal["md5", "sha256", "git"] = "md5"
    size: int | None = None

    def matches(self, path: Path) -> bool:
        """Whether the file at `path` has the digest."""
        return self.mismatch(path) is None

    def mismatch(self, path: Path) -> str | None:
        """Return the expected and the actual digest or size of a file as text; None for a match."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"expected {self.size:,} bytes, found {size:,}"
        actual = file_digest(path, self.algorithm)
        if actual != self.value.lower():
            return f"expected {self.algorithm} {self.value}, found {actual}"
        return None


def file_digest(path: Path, algorithm: str = "md5") -> str:
    """Compute the digest of a file in hexadecimal."""
    header = b"blob %d\0" % path.stat().st_size if algorithm == "git" else b""
    name = "sha1" if algorithm == "git" else algorithm
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(name, header, usedforsecurity=False)).hexdigest()


def impostor(head: bytes) -> str | None:
    """Return what the first bytes are in place of data, an HTML page or a Git LFS pointer; None for data."""
    start = head[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "an HTML page"
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        return "a Git LFS pointer, which only names the file"
    return None


def refuse_impostor(path: Path, *, source: str) -> None:
    """Check that a file is neither empty nor an impostor.

    Raises:
        DataError: The file is an HTML page, a Git LFS pointer or empty.
    """
    with path.open("rb") as file:
        head = file.read(512)
    what = impostor(head) if head else "empty"
    if what:
        raise DataError(f"{source} is {what}, not the data", hint=hint_for(what))


def hint_for(impostor_name: str) -> str:
    """Return the hint for an impostor."""
    if "LFS" in impostor_name:
        return "run `git lfs pull` in its checkout, or download the file itself"
    return "a login page or a proxy may interfere: try --mirror URL, or download by hand and pass --from-file PATH"


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


MIRROR_VARIABLE = "RECSYS_MIRROR"


def address(name: str, published: str, mirror: str | None) -> str:
    """Return the URL of a file at the mirror, by default of RECSYS_MIRROR, or else the published one, which may be empty.

    Raises:
        ConfigError: The mirror is not a web address.
    """
    base = mirror or os.environ.get(MIRROR_VARIABLE)
    if not base:
        return published
    if not base.startswith(("http://", "https://")):
        raise ConfigError(
            f"mirror {base!r} is not a web address",
            hint=f"set --mirror (or {MIRROR_VARIABLE}) to https://host/folder, the folder of {name}",
        )
    return f"{base.rstrip('/')}/{name}"


ELSEWHERE = "choose another server with --mirror URL, or download the file by hand and pass --from-file PATH"


@dataclass(frozen=True)
class RetryPolicy:
    """Retries and timeouts of a download.

    Attributes:
        attempts: Maximum number of consecutive failures without progress.
        wait: Seconds before the second attempt; doubled for each further one.
        max_wait: Maximum seconds of one wait, also for the server's Retry-After.
        timeout: Seconds without a response or a byte until an attempt fails.
        sleep: Function for waiting.
    """

    attempts: int = 5
    wait: float = 1.0
    max_wait: float = 60.0
    timeout: float = 30.0
    sleep: Callable[[float], None] = time.sleep


class _Interrupted(Exception):  # noqa: N818 - internal, never raised to the user
    """A failed attempt, worth a retry."""

    def __init__(self, reason: str, *, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


def download(url: str, to: Path, *, digest: Digest | None, emit: Emit, retry: RetryPolicy | None = None) -> str:
    """Download a complete, verified file and return its digest: md5 without an expected one, for changing content.

    Bytes go to `<to>.part`, resumed by a later call; only a verified file gets the name `to`. A concurrent download of
    the same file waits for the first and reuses its result.

    Raises:
        DataError: The server does not have the file, or sent another one.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(to, emit) as waited:
        if to.exists() and (digest.matches(to) if digest else waited):
            emit(Message(f"{to.name} is already downloaded"))
        else:
            part = PartFile(to)
            try:
                _receive(url, part, by_digest=digest is not None, emit=emit, retry=retry or RetryPolicy())
                _verify(part, digest, url)
                part.finish()
            except OSError as error:
                raise DataError(
                    f"cannot write {part.path}: {error.strerror}", hint="check the free disk space"
                ) from error
        return digest.value if digest else file_digest(to)


@contextmanager
def _exclusive(to: Path, emit: Emit) -> Iterator[bool]:
    """Hold the lock of a download; yields whether another process held it before."""
    from filelock import FileLock, Timeout

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
    """Check the part file; delete it if it is wrong."""
    try:
        refuse_impostor(part.path, source=url)
        wrong = digest.mismatch(part.path) if digest else None
        if wrong:
            raise DataError(f"{url} is not the expected file: {wrong}", hint=f"run the command again, or {ELSEWHERE}")
    except DataError:
        part.discard()
        raise


def _receive(url: str, part: PartFile, *, by_digest: bool, emit: Emit, retry: RetryPolicy) -> None:
    """Fill the part file, with retries."""
    failures = 0
    with httpx.Client(follow_redirects=True, timeout=retry.timeout) as client:
        while True:
            before = part.size()
            try:
                _attempt(client, url, part, by_digest=by_digest, emit=emit)
                return
            except _Interrupted as interruption:
                failures = 1 if part.size() > before else failures + 1
                if failures >= retry.attempts:
                    raise DataError(
                        f"cannot download {url}: {interruption}", hint=f"run the command again, or {ELSEWHERE}"
                    ) from None
                pause = interruption.pause if interruption.pause is not None else retry.wait * 2 ** (failures - 1)
                pause = min(pause, retry.max_wait)
                emit(Message(f"{part.name}: {interruption}; retrying in {pause:.0f} s", level="warning"))
                retry.sleep(pause)


def _attempt(client: httpx.Client, url: str, part: PartFile, *, by_digest: bool, emit: Emit) -> None:
    # Uncompressed transfer, so that offsets and lengths count bytes of the file.
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
        raise _Interrupted("the part on disk does not match the server's file; starting over", pause=0)
    _refuse_status(response, url)
    resumed = response.status_code == httpx.codes.PARTIAL_CONTENT
    offset = part.size() if resumed else 0
    total = _total(response, offset)
    if resumed and not part.continues(response.headers):
        part.discard()
        raise _Interrupted("the server sent another range than requested; starting over", pause=0)
    _refuse_full_disk(part, total, offset)
    chunks = response.iter_raw()
    first = next(chunks, b"")
    if not resumed:
        what = impostor(first)
        if what:
            raise DataError(f"{url} answers with {what}, not with the file", hint=hint_for(what))
        if part.size():
            emit(Message(f"{part.name}: the server cannot resume this download; starting over"))
        part.restart(url, response.headers)
    done = _write(part, first, chunks, report=lambda done: emit(_progress(part, done, total)))
    if total is not None and done < total:
        raise _Interrupted(f"the connection ended after {done:,} of {total:,} bytes")
    if total is None:
        emit(_progress(part, done, done))


@contextmanager
def by_hand_named(steps: str) -> Iterator[None]:
    """Name the steps by hand in the hints of failed downloads, in place of general words."""
    try:
        yield
    except DataError as error:
        if ELSEWHERE not in (error.hint or ""):
            raise
        own = f"choose another server with --mirror URL, or {steps}"
        raise DataError(error.message, hint=str(error.hint).replace(ELSEWHERE, own)) from error


def _refuse_full_disk(part: PartFile, total: int | None, offset: int) -> None:
    """Check the free disk space against the announced size."""
    free = shutil.disk_usage(part.path.parent).free
    if total is not None and total - offset > free:
        raise DataError(
            f"{part.name} has {total:,} bytes, and the disk of {part.path.parent} has {free:,} left",
            hint="free some space, or choose another disk with --workspace",
        )


def _write(part: PartFile, first: bytes, chunks: Iterator[bytes], *, report: Callable[[int], None]) -> int:
    """Append the chunks, each written before the next request, so that a dropped connection loses none."""
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
    answer = f"the server answers {status} {response.reason_phrase}".rstrip()
    if status >= 500 or status in {httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS}:
        seconds = response.headers.get("Retry-After", "")
        raise _Interrupted(answer, pause=float(seconds) if seconds.isdigit() else None)
    raise DataError(f"cannot download {url}: {answer}", hint=ELSEWHERE)


def _translated(error: httpx.RequestError, url: str) -> Exception:
    import ssl

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return DataError(
                f"cannot download {url}: the server's certificate is not valid ({cause.verify_message})",
                hint=f"{ELSEWHERE}; the file's digest is checked, so any source is safe",
            )
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.UnsupportedProtocol | httpx.TooManyRedirects):
        return DataError(f"cannot download {url}: {error}", hint=ELSEWHERE)
    return _Interrupted(str(error) or type(error).__name__)
