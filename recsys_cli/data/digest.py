"""Verification of downloaded files: digests, and signatures of files without data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recsys_cli.errors import DataError


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
    """Recognize an HTML page or a Git LFS pointer in place of data, by the first bytes.

    Returns:
        A description such as "an HTML page", or None.
    """
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
