"""What tells a right file from a wrong one: digests, and the look of files that are not data at all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recsys_cli.errors import DataError


@dataclass(frozen=True)
class Digest:
    """What a file has to be, whoever sends it.

    Attributes:
        value: The digest in hexadecimal.
        algorithm: How it is computed.
        size: Bytes of the file, where that is known too.
    """

    value: str
    algorithm: Literal["md5", "sha256"] = "md5"
    size: int | None = None

    def matches(self, path: Path) -> bool:
        """Whether the file at `path` is the right one."""
        return self.mismatch(path) is None

    def mismatch(self, path: Path) -> str | None:
        """Say what was expected of the file at `path` and what was found, or None where it is the right one."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"expected {self.size:,} bytes, found {size:,}"
        found = file_digest(path, self.algorithm)
        if found != self.value.lower():
            return f"expected {self.algorithm} {self.value}, found {found}"
        return None


def file_digest(path: Path, algorithm: str = "md5") -> str:
    """Compute the digest of a file, as hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def impostor(head: bytes) -> str | None:
    """Recognise what some servers and checkouts hand out in place of data, by its first bytes.

    Returns:
        What it is, such as "an HTML page", or None where nothing is known against it.
    """
    start = head[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "an HTML page"
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        return "a Git LFS pointer, which only names the file"
    return None


def refuse_impostor(path: Path, *, source: str) -> None:
    """Stop where a file is known to be something else than data.

    Raises:
        DataError: The file is an HTML page, a Git LFS pointer or empty.
    """
    with path.open("rb") as file:
        head = file.read(512)
    what = impostor(head) if head else "empty"
    if what:
        raise DataError(f"{source} is {what}, not the data", hint=hint_for(what))


def hint_for(impostor_name: str) -> str:
    """Say what to do about an impostor."""
    if "LFS" in impostor_name:
        return "run `git lfs pull` in the checkout that it came from, or download the file itself"
    return "a login page or a proxy may be in the way: try --mirror URL, or download by hand and pass --from-file PATH"
