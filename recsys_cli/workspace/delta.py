"""Deltas: what changes one bundle into another, in one file, chained by the digest of the base.

The file has packed blocks, then a JSON text about them, its length and its SHA-256. A block of a changed file is compressed
with the bytes of the base around its place as the dictionary, so that only new bytes take space.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

import zstandard
from pydantic import NonNegativeInt, ValidationError

from recsys_cli.errors import DataError, RecsysError
from recsys_cli.frozen import Frozen
from recsys_cli.workspace.artifacts import MANIFEST, Bundle
from recsys_cli.workspace.files import MAX_JSON, replacing, whole

_BLOCK, _MARGIN, _MOST = 8 << 20, 1 << 20, 64 << 20
"""Bytes of a block, of the margins of its dictionary, and of the farthest move: a part of the format, which places dictionaries."""
_END = 8 + 32
_HINT = "copy the delta again, or the whole version"


class Delta(Frozen):
    """The text of a delta: numbers and digests of two versions; the size of each changed file, and those of its packed blocks."""

    format: Literal[1] = 1
    base: tuple[NonNegativeInt, str]
    target: tuple[NonNegativeInt, str]
    files: dict[str, tuple[NonNegativeInt, list[NonNegativeInt]] | None]


class Version(Bundle):
    """A bundle in a folder named by its number."""

    @property
    def number(self) -> int:
        """The number, from 1 on."""
        return int(self.folder.name)

    @property
    def digest(self) -> str:
        """The SHA-256 of the manifest, which has the key and the checksums of all files."""
        return hashlib.sha256((self.folder / MANIFEST).read_bytes()).hexdigest()


def write_delta(path: Path, base: Version, target: Version) -> None:
    """Write the delta between two versions."""
    with replacing(path) as partial, partial.open("wb") as file:
        names = (*target.manifest["files"], MANIFEST)
        files = {name: _pack(base.folder / name, target.folder / name, file) for name in names}
        ends = {"base": (base.number, base.digest), "target": (target.number, target.digest)}
        text = Delta(**ends, files=files).model_dump_json().encode()
        file.write(text + len(text).to_bytes(8, "big") + hashlib.sha256(text).digest())


def read_delta(path: Path) -> Delta:
    """Read the text of a delta, with a check of the text and of the sizes."""
    if path.exists() and not path.is_file():  # a pipe would wait
        raise DataError(f"{path} is no file", hint=_HINT)
    with whole(path, hint=_HINT), path.open("rb") as file:
        start = path.stat().st_size - _END
        file.seek(max(0, start))
        end = file.read(_END)
        length = int.from_bytes(end[:8], "big")
        if length > min(MAX_JSON, start):
            raise ValueError("it is truncated, or no delta")
        file.seek(start - length)
        if hashlib.sha256(text := file.read(length)).digest() != end[8:]:
            raise ValueError("its text does not match its checksum")
        try:
            delta = Delta.model_validate_json(text)
        except ValidationError as error:
            raise ValueError("its text is none of this version of recsys") from error
        if start - length != sum(sum(one[1]) for one in delta.files.values() if one):
            raise ValueError("its blocks are not complete")
    return delta


def apply_delta(path: Path, base: Version, folder: Path) -> None:
    """Write a bundle, byte for byte, into an empty folder: its base, changed by a delta.

    Raises:
        RecsysError: The delta is of another base, or a file is missing or damaged.
    """
    delta = read_delta(path)
    if base.digest != delta.base[1]:
        raise DataError(f"{path} is of another base than {base.folder}", hint=_HINT)
    base.verify(hint="copy this version again")
    with whole(path, hint=_HINT), path.open("rb") as file:
        for name, change in delta.files.items():
            old, target = base.folder / name, (folder / name).resolve()
            if not target.is_relative_to(folder.resolve()) or (change is None and not old.is_file()):
                raise ValueError(f"{name} is no path in the bundle")
            target.parent.mkdir(parents=True, exist_ok=True)
            if change is None:
                shutil.copyfile(old, target)
            else:
                with target.open("wb") as out:
                    out.writelines(_unpack(file, old, *change))
        made = Version(folder)
        if made.digest != delta.target[1] or {*made.manifest["files"], MANIFEST} != {*delta.files}:
            raise ValueError("it does not make the bundle that it names")
        try:
            made.verify()
        except RecsysError as error:
            raise ValueError("its blocks do not make the bundle that it names") from error


def _pack(old: Path, new: Path, out: BinaryIO) -> tuple[int, list[int]] | None:
    """Write the packed blocks of a file, and return its size and theirs; None for equal files."""
    if old.is_file() and filecmp.cmp(old, new, shallow=False):
        return None
    size, packed = new.stat().st_size, []
    with new.open("rb") as file:
        for near in _dictionaries(old, size):
            log = max(20, len(near).bit_length() - 2)  # of the known places in the dictionary
            method = zstandard.ZstdCompressionParameters.from_level(1, hash_log=log, min_match=7, window_log=27)
            packer = zstandard.ZstdCompressor(compression_params=method, dict_data=near)
            packed.append(out.write(packer.compress(file.read(_BLOCK))))
    return size, packed


def _unpack(file: BinaryIO, old: Path, size: int, packed: Sequence[int]) -> Iterator[bytes]:
    for near, length in zip(_dictionaries(old, size), packed, strict=True):
        block = file.read(length)
        if zstandard.get_frame_parameters(block).content_size > _BLOCK:
            raise ValueError("a block is too large")
        yield zstandard.ZstdDecompressor(dict_data=near).decompress(block)


def _dictionaries(old: Path, size: int) -> Iterator[zstandard.ZstdCompressionDict]:
    """Yield for each block of a file the part of its old form from which insertions, or deletions, have moved its bytes."""
    before = old.stat().st_size if old.is_file() else 0
    moved = min(abs(size - before), _MOST)
    with (old if before else Path(os.devnull)).open("rb") as file:
        for at in range(0, size, _BLOCK):
            file.seek(max(0, at - _MARGIN - (moved if size > before else 0)))
            near = file.read(_BLOCK + moved + 2 * _MARGIN)
            yield zstandard.ZstdCompressionDict(near, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
