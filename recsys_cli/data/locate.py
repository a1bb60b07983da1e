"""Which files a path of a config stands for: one file, a glob, a folder, or the same at a URL."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from recsys_cli.data import remote
from recsys_cli.data.remote import RawFile
from recsys_cli.errors import ConfigError, DataError


def locate(table: str, patterns: Sequence[str]) -> tuple[RawFile, ...]:
    """Return the files of a table: of each pattern in the order of their names.

    Args:
        table: Name of the table, for the message.
        patterns: Paths, globs, folders or URLs; paths are relative to the working directory.

    Raises:
        ConfigError: A file is named twice, or no file system is known for a URL.
        DataError: A pattern matches no file, or a folder says with its name what its files lack.
        MissingExtraError: A URL needs a package that is not installed.
    """
    files = tuple(file for pattern in patterns for file in _expand(table, pattern))
    if len(set(files)) < len(files):
        twice = sorted({str(file) for file in files if files.count(file) > 1})
        raise ConfigError(
            f"table {table!r}: {', '.join(twice)} is named twice, and its rows would be there twice",
            hint="let each file be matched by one path or glob",
        )
    return files


def _expand(table: str, pattern: str) -> Sequence[RawFile]:
    if remote.is_url(pattern):
        files: Sequence[RawFile] = remote.find(pattern)
        if not files:
            raise DataError(f"table {table!r}: there is no file at {pattern}")
        return files
    pattern = remote.without_protocol(pattern)
    path = Path(pattern)
    if path.is_file():  # also where the name has a "[" in it
        return [path]
    if path.is_dir():
        return _in_folder(table, path)
    matches = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute patterns
    found = sorted(Path(match) for match in matches if Path(match).is_file())
    if not found:
        what = "no file matches" if glob.has_magic(pattern) else "there is no file"
        raise DataError(f"table {table!r}: {what} {pattern}", hint=f"paths are relative to {Path.cwd()}")
    return found


def _in_folder(table: str, folder: Path) -> list[Path]:
    """Return all files under a folder, but for what writers leave beside their data (_SUCCESS, .part.crc)."""
    inside = {path: path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()}
    found = sorted(path for path, parts in inside.items() if not any(part.startswith((".", "_")) for part in parts))
    if not found:
        raise DataError(f"table {table!r}: there is no file in folder {folder}")
    partitions = sorted({part for path in found for part in inside[path][:-1] if "=" in part})
    if partitions:
        raise DataError(
            f"table {table!r}: {folder} keeps values of a column in the names of its folders, such as {partitions[0]}, "
            "which are not read",
            hint=f"write the column into the files; or take them without it: {folder / '**' / '*'}",
        )
    return found
